//! Instances as they stand.

use std::time::Duration;

use super::limit::Limits;
use super::signal::Signal;
use crate::error::Failure;
use crate::limiter::LimitKind;
use crate::types::{CorrelationKey, InstanceId, Json, MachineKey, QueueName, SignalName, Status};

/// One instance as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Which.
    pub id: InstanceId,
    /// Its machine.
    pub machine: MachineKey,
    /// Its queue.
    pub queue: QueueName,
    /// Where it stands.
    pub status: Status,
    /// Its current or last step.
    pub step: String,
    /// Its state.
    pub state: Json,
    /// How often this step was tried before.
    pub attempt: u32,
    /// How often in a row a worker died while it held this step.
    pub crashes: u32,
    /// Its result, once done.
    pub result: Option<Json>,
    /// What went wrong last: in the step that is being retried, or for good.
    pub failure: Option<Failure>,
    /// Its business identity, while it still holds it.
    pub correlation_key: Option<CorrelationKey>,
    /// How long until it may be claimed; zero when it is due, and meaningless unless it is runnable.
    pub due_in: Duration,
    /// How often it has gone on to a step before.
    pub visit: u32,
    /// The names that it waits for, or that the step was woken for; empty after other progress.
    pub awaited: Vec<SignalName>,
    /// Every signal in its inbox, in order.
    pub inbox: Vec<Signal>,
    /// Whether the deadline of its last wait fired.
    pub deadline_fired: bool,
    /// How long until the deadline of its wait fires; `None` when it has none.
    pub deadline_in: Option<Duration>,
    /// Its parent, if it is a child.
    pub parent: Option<InstanceId>,
    /// How many of its children must still end before it wakes; meaningless unless it waits for children.
    pub children_left: u32,
    /// Whether it executes and must end cancelled.
    pub cancel_requested: bool,
    /// What holds its next step back.
    pub limits: Limits,
    /// Which of its limits it waits for, if it does.
    pub waits_for: Option<LimitKind>,
}

/// As much of an instance as somebody needs who waits for it to settle (rule WAIT-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is runnable or executes.
    Busy,
    /// It waits for signals or children.
    Parked,
    /// It is done, with this result.
    Done(Json),
    /// It failed.
    Failed(Failure),
    /// It was cancelled.
    Cancelled(Failure),
}
