//! What operators do to instances: one transaction that locks first, and then acts on what it sees (rules CANCEL-1 to
//! CANCEL-3).

use std::collections::{BTreeMap, BTreeSet};

use durable_core::store::{Commit, CommitFate, CommitRequest, Operated, Operation, Target, Transition};
use durable_core::{ClaimNumber, Failure, Fence, InstanceId, Json, OperationFate, Status, WorkerId};
use sqlx::{Connection as _, PgConnection, Row as _};

use crate::commit::commit_unclaimed;
use crate::connect::Shared;
use crate::insert::INSERT_RACES;
use crate::values::{decode_error, queues};

/// How long to wait for one locked row, in milliseconds: a caller's transaction must not hold this connection.
const LONGEST_WAIT: &str = "500ms";

/// What each instance got, and the queues in which some became runnable.
type Done = (BTreeMap<i64, OperationFate>, Vec<String>);

/// How often a restart is tried again that lost the race for its correlation key.
const TRIES: usize = 10;

pub(crate) async fn operate(
    shared: &Shared,
    targets: &[Target],
    operation: &Operation,
) -> Result<Operated, sqlx::Error> {
    for _ in 1..TRIES {
        match operate_once(shared, targets, operation).await {
            // Somebody else's instance took the key meanwhile; the next look finds it (rule CORE-5).
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                metrics::counter!(INSERT_RACES).increment(1);
            }
            answer => return answer,
        }
    }
    operate_once(shared, targets, operation).await
}

async fn operate_once(
    shared: &Shared,
    targets: &[Target],
    operation: &Operation,
) -> Result<Operated, sqlx::Error> {
    let mut connection = shared.connection().await?;
    let mut transaction = connection.begin().await?;
    let ids = resolve(&mut transaction, shared, targets).await?;
    let each: BTreeSet<i64> = ids.iter().copied().flatten().collect();
    let each: Vec<i64> = each.into_iter().collect();
    let cancels = matches!(operation, Operation::Cancel { .. });
    lock(&mut transaction, shared, &each, cancels, LONGEST_WAIT).await?;
    let (fates, woken) = match operation {
        Operation::Cancel { failure } => cancel(&mut transaction, shared, &each, failure).await?,
        Operation::RetryNow => act(&mut transaction, shared, &each, Act::RetryNow).await?,
        Operation::Wake => act(&mut transaction, shared, &each, Act::Wake { fired: false }).await?,
        Operation::FireDeadline => act(&mut transaction, shared, &each, Act::Wake { fired: true }).await?,
        _ => act(&mut transaction, shared, &each, Act::Restart).await?,
    };
    transaction.commit().await?;
    let fate = |id: &Option<i64>| {
        id.and_then(|id| fates.get(&id).copied())
            .unwrap_or(OperationFate::NotFound)
    };
    Ok(Operated {
        fates: ids.iter().map(fate).collect(),
        woken: queues(woken)?,
    })
}

/// The ids of the targets, in their order.
async fn resolve(
    connection: &mut PgConnection,
    shared: &Shared,
    targets: &[Target],
) -> Result<Vec<Option<i64>>, sqlx::Error> {
    let keys: Vec<&str> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Key(key) => Some(key.as_str()),
            Target::Id(_) => None,
        })
        .collect();
    let mut holders = Vec::new();
    if !keys.is_empty() {
        holders = sqlx::query_scalar(shared.statements.resolve_keys.text())
            .bind(keys)
            .fetch_all(connection)
            .await?;
    }
    let mut holders = holders.into_iter();
    let id = |target: &Target| match target {
        Target::Id(id) => Some(id.get()),
        Target::Key(_) => holders.next().flatten(),
    };
    Ok(targets.iter().map(id).collect())
}

/// Locks instances, and their parents if asked, in order; waits for each no longer than this.
pub(crate) async fn lock(
    connection: &mut PgConnection,
    shared: &Shared,
    ids: &[i64],
    parents: bool,
    longest_wait: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT set_config('lock_timeout', $1, true)")
        .bind(longest_wait)
        .execute(&mut *connection)
        .await?;
    sqlx::query(shared.statements.lock_instances.text())
        .bind(ids)
        .bind(parents)
        .execute(connection)
        .await?;
    Ok(())
}

/// Ends what does not execute through the commit of an outcome, so that all that follows from an end follows; marks the
/// rest.
async fn cancel(
    connection: &mut PgConnection,
    shared: &Shared,
    ids: &[i64],
    failure: &Failure,
) -> Result<Done, sqlx::Error> {
    let why = Json::encode(failure).map_err(decode_error)?;
    let rows = sqlx::query(shared.statements.take_out.text())
        .bind(ids)
        .bind(why.as_str())
        .fetch_all(&mut *connection)
        .await?;
    let mut fates = BTreeMap::new();
    let mut ends: Vec<Commit> = Vec::new();
    for row in rows {
        let number: i64 = row.try_get("id")?;
        let id = InstanceId::new(number);
        let status: Status = row
            .try_get::<String, _>("status")?
            .parse()
            .map_err(decode_error)?;
        let fate = match status {
            Status::Executing => OperationFate::Requested(id),
            status if status.is_terminal() => OperationFate::Unchanged(id, status),
            _ => {
                ends.push(Commit {
                    id,
                    fence: Fence {
                        claim: ClaimNumber::new(0),
                        seq: row.try_get("seq")?,
                    },
                    parent: row.try_get::<Option<i64>, _>("parent_id")?.map(InstanceId::new),
                    received: 0,
                    transition: Transition::Cancelled {
                        failure: failure.clone(),
                    },
                    limits: None,
                });
                OperationFate::Applied(id)
            }
        };
        fates.insert(number, fate);
    }
    if ends.is_empty() {
        return Ok((fates, Vec::new()));
    }
    // No worker: the lock is what guards these outcomes.
    let request = CommitRequest::new(WorkerId::new(0), ends, Vec::new());
    let committed = commit_unclaimed(connection, shared, &request).await?;
    if committed.fates.iter().any(|fate| *fate != CommitFate::Committed) {
        // Their places are gone: without this, so would the instances be.
        return Err(uncommitted());
    }
    let woken = committed.woken.iter().map(ToString::to_string).collect();
    Ok((fates, woken))
}

fn uncommitted() -> sqlx::Error {
    sqlx::Error::Protocol("an instance that was locked for its cancellation did not take it".to_owned())
}

#[derive(Clone, Copy)]
enum Act {
    RetryNow,
    Wake { fired: bool },
    Restart,
}

/// Runs one statement that answers with the instances that it changed, and says how the others stand.
async fn act(
    connection: &mut PgConnection,
    shared: &Shared,
    ids: &[i64],
    act: Act,
) -> Result<Done, sqlx::Error> {
    let statements = &shared.statements;
    let mut standings = BTreeMap::new();
    for row in sqlx::query(statements.standings.text())
        .bind(ids)
        .fetch_all(&mut *connection)
        .await?
    {
        let status: Status = row
            .try_get::<String, _>("status")?
            .parse()
            .map_err(decode_error)?;
        standings.insert(
            row.try_get::<i64, _>("id")?,
            (status, row.try_get::<String, _>("queue")?),
        );
    }
    let statement = match act {
        Act::RetryNow => sqlx::query(statements.retry_now.text()).bind(ids),
        Act::Wake { fired } => sqlx::query(statements.wake.text()).bind(ids).bind(fired),
        Act::Restart => sqlx::query(statements.restart.text()).bind(ids),
    };
    let mut changed: BTreeMap<i64, Option<i64>> = BTreeMap::new();
    for row in statement.fetch_all(&mut *connection).await? {
        let holder = match act {
            Act::Restart => row.try_get("holder")?,
            Act::RetryNow | Act::Wake { .. } => None,
        };
        changed.insert(row.try_get("id")?, holder);
    }
    let mut done = Done::default();
    for (number, (status, queue)) in standings {
        let id = InstanceId::new(number);
        let fate = match changed.get(&number) {
            Some(None) => {
                done.1.push(queue);
                OperationFate::Applied(id)
            }
            Some(Some(holder)) => OperationFate::Duplicate(InstanceId::new(*holder)),
            None => OperationFate::Unchanged(id, status),
        };
        done.0.insert(number, fate);
    }
    Ok(done)
}
