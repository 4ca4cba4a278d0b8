//! What a claim asks for and brings.

use std::sync::Arc;
use std::time::Duration;

use super::limit::Limits;
use super::signal::Signal;
use crate::error::Failure;
use crate::types::{
    ClaimNumber, Fence, InstanceId, Json, MachineKey, QueueName, SignalName, Status, WorkerId,
};

/// Asks for work.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: WorkerId,
    /// The number of this claim; never used before by this worker.
    pub number: ClaimNumber,
    /// The queue.
    pub queue: QueueName,
    /// The machines that the worker knows; others are left alone, at no cost (rule FSM-5).
    pub machines: Arc<[MachineKey]>,
    /// At most this many.
    pub limit: usize,
}

/// What a claim brought.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// The instances, in the order of rule CLAIM-1.
    pub instances: Vec<ClaimedInstance>,
    /// How long until the next instance of the queue that waits for its time, or less when the store wants to
    /// be asked again sooner; `None` when there is none.
    pub next_due: Option<Duration>,
    /// How many ready instances were set aside, because the limits that they need have no room (rule LIM-7): with some,
    /// there may be more to claim behind them.
    pub set_aside: u64,
    /// The version of the policies, as of this claim; `None` when no instance has a limit.
    pub limits_version: Option<i64>,
}

/// One claimed instance.
#[derive(Clone, Debug)]
pub struct ClaimedInstance {
    /// Which.
    pub id: InstanceId,
    /// What proves that it is ours.
    pub fence: Fence,
    /// Its machine, as an index into [`ClaimRequest::machines`].
    pub machine: usize,
    /// The step to run.
    pub step: String,
    /// Its state.
    pub state: Json,
    /// How often this step was tried before.
    pub attempt: u32,
    /// How often in a row a worker died while it held this step.
    pub crashes: u32,
    /// How often the instance has gone on to a step before: the number of this visit of the step. Stays over
    /// retries and crashes.
    pub visit: u32,
    /// What concerns signals, children and cancellation.
    pub coordination: Coordination,
    /// What must be had before the step starts. A concurrency key without a gate is held already.
    pub limits: Limits,
    /// Whether the concurrency key belongs to a gate: then a slot must be had.
    pub gated: bool,
}

/// What concerns signals, children and cancellation of a claimed instance (rule CLAIM-5). All of it is empty for an
/// instance that has to do with none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coordination {
    /// The parent, if it is a child.
    pub parent: Option<InstanceId>,
    /// How many signals the instance had ever received when it was claimed: the number of the last one.
    pub received: u32,
    /// The names that the last `await` waited for; empty after any other progress.
    pub awaited: Vec<SignalName>,
    /// Every signal in the inbox, in order.
    pub inbox: Vec<Signal>,
    /// The children of the fan-out that was joined, in the order of their inserts; empty after progress.
    pub children: Vec<Child>,
    /// Whether the deadline of the wait was what woke it.
    pub deadline_fired: bool,
    /// Whether it must end cancelled instead of running.
    pub cancel_requested: bool,
}

/// A child, as its parent's next step sees it (rule CHILD-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Which.
    pub id: InstanceId,
    /// Its machine.
    pub machine: MachineKey,
    /// Where it stands; a runnable child and an executing one are not told apart: both are `Runnable`.
    pub status: Status,
    /// Its result, once done.
    pub result: Option<Json>,
    /// Why it failed, was cancelled, or is tried again.
    pub failure: Option<Failure>,
}
