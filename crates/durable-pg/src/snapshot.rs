//! Reads instances as they stand.

use std::time::Duration;

use durable_core::store::{Settlement, Snapshot};
use durable_core::{CorrelationKey, Failure, InstanceId, Json, LimitKind, MachineKey, QueueName};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::connect::Shared;
use crate::coordination::{inbox, name};
use crate::limits::limits_of;
use crate::values::{decode_error, unsigned, visit};

pub(crate) async fn snapshots(
    shared: &Shared,
    ids: &[InstanceId],
) -> Result<Vec<Option<Snapshot>>, sqlx::Error> {
    let numbers: Vec<i64> = ids.iter().map(|id| id.get()).collect();
    let rows = sqlx::query(shared.statements.snapshots.text())
        .bind(numbers)
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut snapshots = vec![None; ids.len()];
    for row in rows {
        let place = usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(decode_error)?;
        if let (Some(slot), Some(id)) = (snapshots.get_mut(place), ids.get(place)) {
            *slot = Some(snapshot(*id, &row)?);
        }
    }
    Ok(snapshots)
}

fn snapshot(id: InstanceId, row: &PgRow) -> Result<Snapshot, sqlx::Error> {
    let version = u16::try_from(row.try_get::<i32, _>("machine_version")?).map_err(decode_error)?;
    let failure: Option<String> = row.try_get("failure")?;
    let key: Option<String> = row.try_get("correlation_guard")?;
    let result: Option<String> = row.try_get("result")?;
    let awaited: Option<Vec<String>> = row.try_get("awaited")?;
    let deadline: Option<i64> = row.try_get("deadline_us")?;
    let children_left: Option<i32> = row.try_get("children_left")?;
    Ok(Snapshot {
        id,
        machine: MachineKey::new(row.try_get::<String, _>("machine")?, version).map_err(decode_error)?,
        queue: QueueName::new(row.try_get::<String, _>("queue")?).map_err(decode_error)?,
        status: row
            .try_get::<String, _>("status")?
            .parse()
            .map_err(decode_error)?,
        step: row.try_get("step")?,
        state: Json::from_store(row.try_get("state")?),
        attempt: u32::try_from(row.try_get::<i32, _>("attempt")?).map_err(decode_error)?,
        crashes: u32::try_from(row.try_get::<i16, _>("crashes")?).map_err(decode_error)?,
        result: result.map(Json::from_store),
        failure: failure
            .map(|failure| Json::from_store(failure).decode())
            .transpose()
            .map_err(decode_error)?,
        correlation_key: key.map(CorrelationKey::new).transpose().map_err(decode_error)?,
        due_in: Duration::from_micros(unsigned(row.try_get("due_us")?)),
        visit: visit(row)?,
        awaited: awaited
            .unwrap_or_default()
            .into_iter()
            .map(name)
            .collect::<Result<_, _>>()?,
        inbox: inbox(row.try_get("inbox")?)?,
        deadline_fired: row.try_get::<Option<bool>, _>("deadline_fired")?.unwrap_or(false),
        deadline_in: deadline.map(|left| Duration::from_micros(unsigned(left))),
        parent: row.try_get::<Option<i64>, _>("parent_id")?.map(InstanceId::new),
        children_left: u32::try_from(children_left.unwrap_or(0)).map_err(decode_error)?,
        cancel_requested: row.try_get("cancel_requested")?,
        limits: limits_of(
            row.try_get("concurrency_key")?,
            row.try_get("rate_key")?,
            row.try_get("weight")?,
        )?,
        waits_for: match row.try_get::<Option<String>, _>("waits_for")?.as_deref() {
            Some("rate") => Some(LimitKind::Rate),
            Some(_) => Some(LimitKind::Gate),
            None => None,
        },
    })
}

pub(crate) async fn settlements(
    shared: &Shared,
    ids: &[InstanceId],
) -> Result<Vec<Option<Settlement>>, sqlx::Error> {
    let numbers: Vec<i64> = ids.iter().map(|id| id.get()).collect();
    let rows = sqlx::query(shared.statements.settlements.text())
        .bind(numbers)
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut settlements = vec![None; ids.len()];
    for row in rows {
        let place = usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(decode_error)?;
        if let Some(slot) = settlements.get_mut(place) {
            *slot = Some(settlement(&row)?);
        }
    }
    Ok(settlements)
}

fn settlement(row: &PgRow) -> Result<Settlement, sqlx::Error> {
    let status: String = row.try_get("status")?;
    let failure = || -> Result<Failure, sqlx::Error> {
        Json::from_store(row.try_get("failure")?)
            .decode()
            .map_err(decode_error)
    };
    Ok(match status.as_str() {
        "active" => Settlement::Busy,
        "done" => Settlement::Done(Json::from_store(row.try_get("result")?)),
        "failed" => Settlement::Failed(failure()?),
        "cancelled" => Settlement::Cancelled(failure()?),
        _ => Settlement::Parked,
    })
}
