//! Inserts the children of outcomes that were committed, in the same transaction (rule CHILD-1).

use durable_core::store::{Commit, CommitRequest, NewInstance, Transition};
use sqlx::PgConnection;

use super::Spawned;
use super::columns::Written;
use crate::connect::Shared;
use crate::insert::{Batch, Parent, insert};
use crate::values::decode_error;

/// The children that an outcome schedules.
fn children(commit: &Commit) -> &[NewInstance] {
    match &commit.transition {
        Transition::ScheduleChildren { children, .. } => children,
        _ => &[],
    }
}

/// The lanes of all children, outcome by outcome; missing ones are created before the transaction begins.
pub(super) async fn children_lanes(
    shared: &Shared,
    request: &CommitRequest,
) -> Result<Vec<Vec<i32>>, sqlx::Error> {
    let mut all = Vec::with_capacity(request.outcomes.len());
    for outcome in request.outcomes.iter() {
        let lanes = children(outcome)
            .iter()
            .map(|child| (&child.queue, &child.machine));
        all.push(shared.lanes.ids(shared, lanes).await?);
    }
    Ok(all)
}

/// Inserts the children of what was committed, and lets those go on who have nobody to wait for (rule CHILD-1).
pub(super) async fn insert_children(
    connection: &mut PgConnection,
    shared: &Shared,
    request: &CommitRequest,
    spawned: &[Spawned],
    lanes: &[Vec<i32>],
) -> Result<(), sqlx::Error> {
    let (mut entries, mut entry_lanes, mut parents) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ids, mut needed, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (at, fan_out) in spawned {
        let (Some(outcome), Some(lanes)) = (request.outcomes.get(*at), lanes.get(*at)) else {
            continue;
        };
        let id = outcome.id.get();
        let fan_out = *fan_out;
        entries.extend_from_slice(children(outcome));
        entry_lanes.extend_from_slice(lanes);
        parents.extend(lanes.iter().map(|_| Parent { id, fan_out }));
        ids.push(id);
        needed.push(Written::of(&outcome.transition).needed);
        counts.push(lanes.len());
    }
    let mut inserted = Vec::new();
    if !entries.is_empty() {
        let batch = Batch {
            entries: &entries,
            lanes: &entry_lanes,
            parents: Some(&parents),
        };
        inserted = insert(connection, &shared.statements, batch).await?;
    }
    let mut inserted = inserted.into_iter();
    let mut new = Vec::with_capacity(counts.len());
    for count in counts {
        let news = inserted
            .by_ref()
            .take(count)
            .filter(|one| !one.is_duplicate())
            .count();
        new.push(i32::try_from(news).map_err(decode_error)?);
    }
    sqlx::query(shared.statements.fan_out.text())
        .bind(ids)
        .bind(needed)
        .bind(new)
        .execute(connection)
        .await?;
    Ok(())
}
