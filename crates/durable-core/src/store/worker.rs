//! Workers: how they register, what a heartbeat answers, and what they should know of each other.

use std::time::Duration;

use crate::process::ProcessIdentity;
use crate::types::{ClaimNumber, InstanceId, MachineKey, QueueName};

/// A worker that registers.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// The engine's name, for people.
    pub name: String,
    /// How long it is trusted without a heartbeat.
    pub lease: Duration,
    /// What tells this process from every other one, where the system can (rule LEASE-3).
    pub process: Option<ProcessIdentity>,
    /// Which maintenance it does.
    pub roles: Roles,
}

/// Which maintenance a worker does (rule OPS-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Whether it returns the work of dead workers.
    pub reaper: bool,
    /// Whether it removes terminal instances after their retention.
    pub collector: bool,
}

impl Roles {
    /// All of it.
    pub const ALL: Self = Self {
        reaper: true,
        collector: true,
    };
    /// None of it.
    pub const NONE: Self = Self {
        reaper: false,
        collector: false,
    };
}

/// What an engine should know of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Whether a live worker has the reaper role.
    pub reaper: bool,
    /// Whether a live worker has the collector role.
    pub collector: bool,
    /// The machines of which instances are ready in the given queues, and which are not among those given.
    /// In order.
    pub unknown: Vec<(QueueName, MachineKey)>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The lease is extended. The store holds these claims for the worker; one that the worker does not know
    /// is one whose answer was lost (rule CLAIM-6).
    Alive {
        /// All open claims of the worker.
        claims: Vec<ClaimNumber>,
        /// Executing instances, of any worker, whose cancellation was asked for (rule CANCEL-1).
        cancelled: Vec<InstanceId>,
    },
    /// The worker was declared dead; its work is being taken back.
    Dead,
}
