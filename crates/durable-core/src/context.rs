//! What a step may know about the instance that it runs.

use tokio_util::sync::CancellationToken;

use crate::types::{InstanceId, MachineKey};

/// What a step may know about the instance that it runs (rule FSM-6).
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) id: InstanceId,
    pub(crate) machine: MachineKey,
    pub(crate) step: String,
    pub(crate) attempt: u32,
    pub(crate) crashes: u32,
    pub(crate) stopping: CancellationToken,
}

impl Context {
    /// The instance.
    #[must_use]
    pub const fn id(&self) -> InstanceId {
        self.id
    }

    /// Its machine.
    #[must_use]
    pub const fn machine(&self) -> &MachineKey {
        &self.machine
    }

    /// The name of the step that runs.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// How often this step was tried before: 0 on the first try.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How often in a row a worker died, or lost its lease, while it ran this step.
    #[must_use]
    pub const fn crashes(&self) -> u32 {
        self.crashes
    }

    /// Trips when the worker shuts down or has lost its lease. A long step should watch it, and end early:
    /// after a lost lease nothing that it returns is committed.
    #[must_use]
    pub const fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}
