//! What a store says of an instance, in words without ids; of times only whether they have come.

use std::fmt::Write as _;
use std::time::Duration;

use durable_core::store::{Coordination, Signal, Snapshot};
use durable_core::{Failure, QueueName, SignalName, Status, StoreError};

use super::Player;
use crate::histories::vocabulary::value;

impl Player {
    pub(super) async fn snapshots(&self) -> Result<String, StoreError> {
        let snapshots = self.store.snapshots(self.instances.clone()).await?;
        let mut said = format!("{} instances", snapshots.len());
        for (position, snapshot) in snapshots.into_iter().enumerate() {
            let text = snapshot.map_or_else(|| "removed".to_owned(), |snapshot| self.told(&snapshot));
            let _ = write!(said, "\n#{position} {text}");
        }
        Ok(said)
    }

    /// A snapshot, all but its id.
    fn told(&self, snapshot: &Snapshot) -> String {
        let Snapshot {
            machine,
            queue,
            status,
            step,
            attempt,
            crashes,
            visit,
            ..
        } = snapshot;
        let mut said = format!(
            "{status}, {machine} in {queue}, {step} {}",
            value(&snapshot.state)
        );
        let _ = write!(said, ", attempt {attempt}, crashes {crashes}, visit {visit}");
        if *status == Status::Runnable && snapshot.due_in > Duration::ZERO {
            said.push_str(", later");
        }
        if let Some(result) = &snapshot.result {
            let _ = write!(said, ", result {}", value(result));
        }
        if let Some(failure) = &snapshot.failure {
            let _ = write!(said, ", failure {}", told_failure(failure));
        }
        if let Some(key) = &snapshot.correlation_key {
            let _ = write!(said, ", holds {key}");
        }
        if let Some(parent) = snapshot.parent {
            let _ = write!(said, ", child of {}", self.name(parent));
        }
        if let Some(left) = snapshot.deadline_in {
            let later = if left > Duration::ZERO { "later" } else { "due" };
            let _ = write!(said, ", deadline {later}");
        }
        if snapshot.children_left > 0 {
            let _ = write!(said, ", waits for {} children", snapshot.children_left);
        }
        said.push_str(&told_inbox(&snapshot.awaited, &snapshot.inbox));
        if snapshot.deadline_fired {
            said.push_str(", deadline fired");
        }
        if snapshot.cancel_requested {
            said.push_str(", must end");
        }
        said
    }

    /// What a claim says of signals, children and cancellation.
    pub(super) fn told_coordination(&self, coordination: &Coordination) -> String {
        let mut said = told_inbox(&coordination.awaited, &coordination.inbox);
        if coordination.received > 0 {
            let _ = write!(said, ", received {}", coordination.received);
        }
        if let Some(parent) = coordination.parent {
            let _ = write!(said, ", child of {}", self.name(parent));
        }
        for child in &coordination.children {
            let _ = write!(
                said,
                ", sees {} {} {}",
                self.name(child.id),
                child.machine,
                child.status
            );
            if let Some(result) = &child.result {
                let _ = write!(said, " result {}", value(result));
            }
            if let Some(failure) = &child.failure {
                let _ = write!(said, " failure {}", told_failure(failure));
            }
        }
        if coordination.deadline_fired {
            said.push_str(", deadline fired");
        }
        if coordination.cancel_requested {
            said.push_str(", must end");
        }
        said
    }
}

fn told_failure(failure: &Failure) -> String {
    format!("{:?} {failure}", failure.kind)
}

fn told_inbox(awaited: &[SignalName], inbox: &[Signal]) -> String {
    let mut said = String::new();
    for name in awaited {
        let _ = write!(said, ", awaits {name}");
    }
    for Signal {
        number,
        name,
        payload,
    } in inbox
    {
        let _ = write!(said, ", signal {number} {name} {}", value(payload));
    }
    said
}

/// The queues that were woken; nothing when there are none.
pub(super) fn told_woken(woken: &[QueueName]) -> String {
    let names: Vec<&str> = woken.iter().map(QueueName::as_str).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(", woke {}", names.join(" "))
}
