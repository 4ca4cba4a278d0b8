//! Reads what the database says, as JSON, of signals and children.

use durable_core::store::Coordination;
use durable_core::{Child, Failure, InstanceId, Json, MachineKey, Signal, SignalName, Status};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::values::decode_error;

/// The column `coordination` of a claim; NULL when the instance has to do with none of it.
#[derive(Deserialize)]
struct Row {
    parent: Option<i64>,
    received: u32,
    awaited: Vec<String>,
    deadline_fired: bool,
    cancel_requested: bool,
    inbox: Option<Vec<SignalRow>>,
    children: Option<Vec<ChildRow>>,
}

#[derive(Deserialize)]
struct SignalRow {
    number: u32,
    name: String,
    payload: Box<RawValue>,
}

#[derive(Deserialize)]
struct ChildRow {
    id: i64,
    machine: String,
    version: u16,
    status: String,
    result: Option<Box<RawValue>>,
    failure: Option<Failure>,
}

/// A name that the store has kept.
pub(crate) fn name(text: String) -> Result<SignalName, sqlx::Error> {
    SignalName::new(text).map_err(decode_error)
}

fn signal(row: SignalRow) -> Result<Signal, sqlx::Error> {
    Ok(Signal {
        number: row.number,
        name: name(row.name)?,
        payload: Json::from_store(row.payload.get().to_owned()),
    })
}

fn child(row: ChildRow) -> Result<Child, sqlx::Error> {
    let status = match row.status.as_str() {
        "active" => Status::Runnable,
        other => other.parse().map_err(decode_error)?,
    };
    // A result of JSON null reads as none; only a done child has one.
    let result = match row.result {
        Some(result) => Some(Json::from_store(result.get().to_owned())),
        None if status == Status::Done => Some(Json::from_store("null".to_owned())),
        None => None,
    };
    Ok(Child {
        id: InstanceId::new(row.id),
        machine: MachineKey::new(row.machine, row.version).map_err(decode_error)?,
        status,
        result,
        failure: row.failure,
    })
}

/// The inbox, as JSON.
pub(crate) fn inbox(json: Option<&str>) -> Result<Vec<Signal>, sqlx::Error> {
    let Some(json) = json else { return Ok(Vec::new()) };
    let rows: Vec<SignalRow> = serde_json::from_str(json).map_err(decode_error)?;
    rows.into_iter().map(signal).collect()
}

/// What a claim says of signals, children and cancellation.
pub(crate) fn coordination(json: Option<&str>) -> Result<Coordination, sqlx::Error> {
    let Some(json) = json else {
        return Ok(Coordination::default());
    };
    let row: Row = serde_json::from_str(json).map_err(decode_error)?;
    let all = |names: Vec<String>| names.into_iter().map(name).collect::<Result<_, _>>();
    Ok(Coordination {
        parent: row.parent.map(InstanceId::new),
        received: row.received,
        awaited: all(row.awaited)?,
        inbox: row
            .inbox
            .unwrap_or_default()
            .into_iter()
            .map(signal)
            .collect::<Result<_, _>>()?,
        children: row
            .children
            .unwrap_or_default()
            .into_iter()
            .map(child)
            .collect::<Result<_, _>>()?,
        deadline_fired: row.deadline_fired,
        cancel_requested: row.cancel_requested,
    })
}
