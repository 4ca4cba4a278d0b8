//! Commits outcomes: one statement, or one transaction where children are inserted or locks are waited for.

mod children;
mod columns;
mod set_aside;

use std::collections::{HashMap, HashSet};

use durable_core::ClaimNumber;
use durable_core::store::{Commit, CommitFate, CommitRequest, Committed, Limits, Patience, Transition};
use sqlx::{Connection as _, PgConnection, Row as _};

use self::children::{children_lanes, insert_children};
use self::columns::{Columns, Written, array_literal};
use self::set_aside::set_aside;
use crate::connect::Shared;
use crate::limits::{freed, limit_columns};
use crate::operation::lock;
use crate::values::{decode_error, queues};

/// How long a patient commit waits for one locked row.
const LONGEST_WAIT: &str = "100ms";

pub(crate) async fn commit(shared: &Shared, request: &CommitRequest) -> Result<Committed, sqlx::Error> {
    let spawns = |commit: &Commit| matches!(commit.transition, Transition::ScheduleChildren { .. });
    let mut connection = shared.connection().await?;
    let blocked = |commit: &Commit| matches!(commit.transition, Transition::Blocked { .. });
    let one_statement = |commit: &Commit| !spawns(commit) && !blocked(commit);
    if request.patience == Patience::Skip && request.outcomes.iter().all(one_statement) {
        return Ok(commit_once(&mut connection, shared, request, true).await?.0);
    }
    let mut transaction = connection.begin().await?;
    if request.patience == Patience::Wait {
        let ids: Vec<i64> = request.outcomes.iter().map(|outcome| outcome.id.get()).collect();
        lock(&mut transaction, shared, &ids, true, LONGEST_WAIT).await?;
    }
    let committed = commit_whole(&mut transaction, shared, request).await?;
    transaction.commit().await?;
    Ok(committed)
}

/// Commits outcomes, inserts the children of those that schedule any, and sets aside those that are blocked, in a
/// transaction of the caller.
pub(crate) async fn commit_whole(
    transaction: &mut PgConnection,
    shared: &Shared,
    request: &CommitRequest,
) -> Result<Committed, sqlx::Error> {
    // Lanes that are missing are created on another connection, before anything is locked.
    let lanes = children_lanes(shared, request).await?;
    let (committed, spawned) = commit_once(transaction, shared, request, true).await?;
    if !spawned.is_empty() {
        insert_children(transaction, shared, request, &spawned, &lanes).await?;
    }
    set_aside(transaction, shared, request, &committed).await?;
    Ok(committed)
}

/// Commits outcomes that no claim guards, as the caller holds the locks of their instances.
pub(crate) async fn commit_unclaimed(
    transaction: &mut PgConnection,
    shared: &Shared,
    request: &CommitRequest,
) -> Result<Committed, sqlx::Error> {
    Ok(commit_once(transaction, shared, request, false).await?.0)
}

/// An instance whose children are still to be inserted: its place in the request, and the number of the fan-out.
type Spawned = (usize, i32);

async fn commit_once(
    connection: &mut PgConnection,
    shared: &Shared,
    request: &CommitRequest,
    claimed: bool,
) -> Result<(Committed, Vec<Spawned>), sqlx::Error> {
    let columns = Columns::of(&request.outcomes, claimed);
    let closed: Vec<i64> = request.closed.iter().map(|number| number.get()).collect();
    let failures = columns
        .rows
        .iter()
        .map(Written::failure)
        .collect::<Result<Vec<_>, _>>()?;
    let changes = || request.outcomes.iter().map(|outcome| outcome.limits.as_ref());
    let none = Limits::default();
    let limits = limit_columns(changes().map(|limits| limits.unwrap_or(&none)));
    let relimits = changes()
        .any(|limits| limits.is_some())
        .then(|| changes().map(|limits| limits.is_some()).collect::<Vec<_>>());
    let row = sqlx::query(shared.statements.commit.text())
        .bind(request.worker.get())
        .bind(&columns.ids)
        .bind(&columns.numbers)
        .bind(&columns.seqs)
        .bind(&columns.kinds)
        .bind(columns.column(|row| row.step))
        .bind(columns.column(|row| row.state))
        .bind(columns.column(|row| row.delay))
        .bind(columns.column(|row| row.result))
        .bind(failures)
        .bind(closed)
        .bind(
            columns
                .parents
                .iter()
                .any(Option::is_some)
                .then_some(&columns.parents),
        )
        .bind(
            columns
                .received
                .iter()
                .any(|received| *received > 0)
                .then_some(&columns.received),
        )
        .bind(columns.rare(|row| row.awaits.as_deref().map(array_literal)))
        .bind(columns.rare(|row| row.timeout))
        .bind(columns.rare(|row| row.needed))
        .bind(columns.ended_parents.iter().copied().collect::<Vec<i64>>())
        .bind(request.ahead.map(ClaimNumber::get))
        .bind(relimits)
        .bind(limits.concurrency)
        .bind(limits.rates)
        .bind(limits.weights)
        .fetch_one(connection)
        .await?;
    let places = |column| -> Result<HashSet<i64>, sqlx::Error> {
        Ok(row
            .try_get::<Option<Vec<i64>>, _>(column)?
            .unwrap_or_default()
            .into_iter()
            .collect())
    };
    let (committed, locked) = (places("committed")?, places("locked")?);
    let cancelling = places("cancelling")?;
    // Behind an outcome of the same instance that was committed nothing is asked for any more.
    let mut over: HashMap<i64, i64> = HashMap::new();
    for (place, id) in (1..).zip(&columns.ids) {
        if committed.contains(&place) {
            over.entry(*id).or_insert(place);
        }
    }
    let over = |place: i64| {
        let id = usize::try_from(place - 1).ok().and_then(|at| columns.ids.get(at));
        id.and_then(|id| over.get(id)).is_some_and(|end| *end < place)
    };
    let fate = |place: i64| {
        if committed.contains(&place) {
            CommitFate::Committed
        } else if cancelling.contains(&place) && !over(place) {
            CommitFate::CancelRequested
        } else if locked.contains(&place) {
            CommitFate::Locked
        } else {
            CommitFate::Stale
        }
    };
    let fates = (1..).take(request.outcomes.len()).map(fate).collect();
    let woken: Option<Vec<String>> = row.try_get("woken")?;
    let spawning: Option<Vec<i64>> = row.try_get("spawning")?;
    let fan_outs: Option<Vec<i32>> = row.try_get("fan_outs")?;
    let mut spawned = Vec::new();
    for (place, fan_out) in spawning
        .unwrap_or_default()
        .into_iter()
        .zip(fan_outs.unwrap_or_default())
    {
        spawned.push((usize::try_from(place - 1).map_err(decode_error)?, fan_out));
    }
    // Children are inserted in the caller's order, whatever order the statement worked in.
    spawned.sort_unstable();
    let woken = queues(woken.unwrap_or_default())?;
    let freed = freed(row.try_get("freed")?)?;
    Ok((Committed { fates, woken, freed }, spawned))
}
