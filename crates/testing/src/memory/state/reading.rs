//! Instances as they stand.

use std::time::Duration;

use durable_core::store::{Settlement, Snapshot};
use durable_core::{CorrelationKey, Failure, FailureKind, InstanceId, Json, Status};

use super::{Row, State};

impl State {
    pub(in crate::memory) fn snapshot(&self, now: Duration, id: InstanceId) -> Option<Snapshot> {
        let row = self.instances.get(&id)?;
        Some(Snapshot {
            id,
            machine: row.machine.clone(),
            queue: row.queue.clone(),
            status: row.status,
            step: row.step.clone(),
            state: row.state.clone(),
            attempt: row.attempt,
            crashes: row.crashes,
            result: row.result.clone(),
            failure: row.failure.clone(),
            correlation_key: row.correlation.as_ref().map(|(key, _)| key.clone()),
            due_in: row.eligible.saturating_sub(now),
            visit: row.visit,
            awaited: row.awaited.clone(),
            inbox: row.inbox.clone(),
            deadline_fired: row.deadline_fired,
            deadline_in: row.deadline.map(|deadline| deadline.saturating_sub(now)),
            parent: row.parent.map(|(parent, _)| parent),
            children_left: match row.status {
                Status::AwaitingChildren => row.left,
                _ => 0,
            },
            cancel_requested: row.cancellation.is_some(),
            limits: row.limits.clone(),
            waits_for: row.waits_for,
        })
    }

    pub(in crate::memory) fn settlement(&self, id: InstanceId) -> Option<Settlement> {
        let row = self.instances.get(&id)?;
        Some(match row.status {
            Status::Runnable | Status::Executing => Settlement::Busy,
            Status::AwaitingSignal | Status::AwaitingChildren => Settlement::Parked,
            Status::Done => Settlement::Done(result(row)),
            Status::Failed => Settlement::Failed(failure(row)),
            Status::Cancelled => Settlement::Cancelled(failure(row)),
        })
    }

    pub(in crate::memory) fn unfinished_children(&self, parents: &[InstanceId]) -> Vec<InstanceId> {
        let of_these = |row: &Row| row.parent.is_some_and(|(parent, _)| parents.contains(&parent));
        self.instances
            .iter()
            .filter(|(_, row)| of_these(row) && !row.status.is_terminal())
            .map(|(id, _)| *id)
            .collect()
    }

    pub(in crate::memory) fn find(&self, key: &CorrelationKey) -> Option<InstanceId> {
        self.keys.get(key).copied()
    }
}

/// Each end writes its own; the rest is for the compiler.
fn result(row: &Row) -> Json {
    let missing = || Json::from_store("null".to_owned());
    row.result.clone().unwrap_or_else(missing)
}

fn failure(row: &Row) -> Failure {
    let missing = || Failure::new(FailureKind::Error, "");
    row.failure.clone().unwrap_or_else(missing)
}
