//! Delivers signals (rules SIG-1, SIG-2), and fires deadlines (SIG-4).

use std::time::Duration;

use durable_core::store::{Delivered, Expired, NewSignal, Target};
use durable_core::{DeduplicationKey, InstanceId, QueueName, SignalFate};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::connect::Shared;
use crate::statements::{Statement, Statements};
use crate::values::{decode_error, queues, unsigned};

/// How often signals are delivered again whose key changed hands between the look and the lock.
const TRIES: usize = 10;

pub(crate) async fn deliver(shared: &Shared, signals: &[NewSignal]) -> Result<Delivered, sqlx::Error> {
    let mut fates = vec![SignalFate::NoTarget; signals.len()];
    let mut woken: Vec<String> = Vec::new();
    let mut open: Vec<usize> = (0..signals.len()).collect();
    for _ in 0..TRIES {
        let mut again = Vec::new();
        for row in deliver_once(shared, signals, &open).await? {
            let place = usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(decode_error)?;
            let Some(&at) = open.get(place) else { continue };
            let id: Option<i64> = row.try_get("instance_id")?;
            let fate = match (row.try_get::<String, _>("fate")?.as_str(), id) {
                ("stored", Some(id)) => SignalFate::Stored(InstanceId::new(id)),
                ("duplicate", Some(id)) => SignalFate::Duplicate(InstanceId::new(id)),
                _ => SignalFate::NoTarget,
            };
            let by_key = matches!(signals.get(at), Some(one) if matches!(one.target, Target::Key(_)));
            if fate == SignalFate::NoTarget && by_key && id.is_some() {
                again.push(at);
            }
            if let Some(slot) = fates.get_mut(at) {
                *slot = fate;
            }
            woken.extend(row.try_get::<Option<String>, _>("woken_queue")?);
        }
        if again.is_empty() {
            break;
        }
        again.sort_unstable();
        open = again;
    }
    let woken = queues(woken)?;
    Ok(Delivered { fates, woken })
}

/// Delivers those of the signals that stand at `open`.
async fn deliver_once(
    shared: &Shared,
    signals: &[NewSignal],
    open: &[usize],
) -> Result<Vec<PgRow>, sqlx::Error> {
    let open = open.iter().filter_map(|&at| signals.get(at));
    let mut connection = shared.connection().await?;
    run(&mut connection, &shared.statements.deliver, open).await
}

/// Sends signals in the transaction of a connection; whether each has a target.
pub(crate) async fn send(
    connection: &mut PgConnection,
    statements: &Statements,
    signals: &[NewSignal],
) -> Result<Vec<bool>, sqlx::Error> {
    let rows = run(connection, &statements.send, signals.iter()).await?;
    rows.iter().map(|row| row.try_get("accepted")).collect()
}

/// Runs a statement that takes signals, one array per column.
async fn run(
    connection: &mut PgConnection,
    statement: &Statement,
    signals: impl Iterator<Item = &NewSignal> + Clone,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let (ids, keys): (Vec<Option<i64>>, Vec<Option<&str>>) = signals
        .clone()
        .map(|signal| match &signal.target {
            Target::Id(id) => (Some(id.get()), None),
            Target::Key(key) => (None, Some(key.as_str())),
        })
        .unzip();
    let names: Vec<&str> = signals.clone().map(|signal| signal.name.as_str()).collect();
    let payloads: Vec<&str> = signals.clone().map(|signal| signal.payload.as_str()).collect();
    let deduplication_keys: Vec<Option<&str>> = signals
        .map(|signal| signal.deduplication_key.as_ref().map(DeduplicationKey::as_str))
        .collect();
    sqlx::query(statement.text())
        .bind(ids)
        .bind(keys)
        .bind(names)
        .bind(payloads)
        .bind(deduplication_keys)
        .fetch_all(connection)
        .await
}

pub(crate) async fn expire(shared: &Shared, limit: usize) -> Result<Expired, sqlx::Error> {
    let row = sqlx::query(shared.statements.expire.text())
        .bind(i64::from(i32::try_from(limit).unwrap_or(i32::MAX)))
        .fetch_one(&mut *shared.connection().await?)
        .await?;
    let (instances, over): (i64, i64) = (row.try_get("instances")?, row.try_get("over")?);
    let woken: Vec<QueueName> = queues(
        row.try_get::<Option<Vec<String>>, _>("woken")?
            .unwrap_or_default(),
    )?;
    let next: Option<i64> = row.try_get("next_us")?;
    Ok(Expired {
        instances: unsigned(instances),
        woken,
        next: next.map(|next| Duration::from_micros(unsigned(next))),
        // Without progress the rest is locked: nothing to do at once.
        more: row.try_get::<bool, _>("more")? && instances + over > 0,
    })
}
