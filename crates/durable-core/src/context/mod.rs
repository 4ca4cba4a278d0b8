//! What a step may know about the instance that it runs.

mod inbox;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::store::{Child, ClaimedInstance};
use crate::types::{InstanceId, MachineKey};

pub use inbox::{ChildError, SignalError};

/// What a step may know about the instance that it runs (rule FSM-6).
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) instance: Arc<ClaimedInstance>,
    pub(crate) machine: MachineKey,
    pub(crate) tokens: StepTokens,
}

/// What tells a step that it should end early.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepTokens {
    /// Trips for any reason.
    pub(crate) stopping: CancellationToken,
    /// Trips when the cancellation of the instance was asked for.
    pub(crate) cancelled: CancellationToken,
}

impl StepTokens {
    /// Tokens of a step of a worker, whose own token trips them too.
    pub(crate) fn of(worker: &CancellationToken) -> Self {
        Self {
            stopping: worker.child_token(),
            cancelled: CancellationToken::new(),
        }
    }

    /// The cancellation of the instance was asked for.
    pub(crate) fn cancel(&self) {
        self.cancelled.cancel();
        self.stopping.cancel();
    }
}

impl Context {
    /// The instance.
    #[must_use]
    pub fn id(&self) -> InstanceId {
        self.instance.id
    }

    /// Its machine.
    #[must_use]
    pub const fn machine(&self) -> &MachineKey {
        &self.machine
    }

    /// The name of the step that runs.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.instance.step
    }

    /// How often this step was tried before: 0 on the first try.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.instance.attempt
    }

    /// How often in a row a worker died, or lost its lease, while it ran this step.
    #[must_use]
    pub fn crashes(&self) -> u32 {
        self.instance.crashes
    }

    /// How often the instance has gone on to a step before: 0 for its first step. The same for every try of one
    /// visit, and another number when a loop comes back to the step.
    #[must_use]
    pub fn visit(&self) -> u32 {
        self.instance.visit
    }

    /// A key for a call to the outside world that must take effect once: `"{instance}-{step}-{visit}"`. It is the same
    /// for every try of this visit of the step, after an error, a crash or a lost lease, and never the same for
    /// another visit or instance of the store.
    ///
    /// The engine commits an outcome once, but a step may run more than once: its process can die between the call and
    /// the commit. So give the key to the other side, which then does nothing the second time; most payment and mail
    /// services take an `Idempotency-Key` header. A step that makes several such calls adds something to the key for
    /// each.
    ///
    /// ```
    /// # use durable_core::{Context, Error};
    /// # struct Payments;
    /// # impl Payments { async fn charge(&self, _cents: u64, _key: &str) -> Result<u64, Error> { Ok(1) } }
    /// # async fn step(payments: &Payments, context: &Context) -> Result<(), Error> {
    /// let payment = payments.charge(4_200, &context.idempotency_key()).await?;
    /// # let _ = payment;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Instances of another store (another schema, say) have the same numbers: put a name of yours in front if they
    /// call the same account.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}-{}", self.id(), self.step(), self.visit())
    }

    /// As [`idempotency_key`](Self::idempotency_key), and another one for each try: `"{instance}-{step}-{visit}-{attempt}"`.
    /// For what each try does anew, and for logs.
    #[must_use]
    pub fn attempt_key(&self) -> String {
        format!("{}-{}", self.idempotency_key(), self.attempt())
    }

    /// Whether the deadline of the wait before this step was what woke it (rule SIG-4).
    #[must_use]
    pub fn deadline_fired(&self) -> bool {
        self.instance.coordination.deadline_fired
    }

    /// The children of the [`schedule_children`](crate::schedule_children) before this step, each with its status,
    /// result and failure, in the order in which they were given; those that were duplicates are not there. Empty
    /// after any other progress (rule CHILD-2).
    #[must_use]
    pub fn children(&self) -> &[Child] {
        &self.instance.coordination.children
    }

    /// Whether somebody asked to cancel this instance while its step runs. Whatever the step returns, the instance
    /// ends cancelled (rule CANCEL-1).
    #[must_use]
    pub fn cancel_requested(&self) -> bool {
        self.tokens.cancelled.is_cancelled()
    }

    /// Trips when the worker shuts down or has lost its lease, or when somebody asked to cancel the instance
    /// ([`cancel_requested`](Self::cancel_requested) tells that one): at once in the process that runs the step,
    /// within a quarter of the lease in another one. A long step should watch it, and end early: after a lost lease
    /// nothing that it returns is committed.
    #[must_use]
    pub const fn stopping(&self) -> &CancellationToken {
        &self.tokens.stopping
    }
}
