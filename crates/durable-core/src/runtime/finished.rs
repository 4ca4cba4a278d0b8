//! An outcome on its way into the store.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::limits::Permit;
use super::slots::Slot;
use super::worker::Worker;
use crate::registry::{Handler, Work};
use crate::store::{ClaimedInstance, Commit, Limits, Transition};
use crate::types::{ClaimNumber, Fence};

/// An outcome on its way into the store.
pub(crate) struct Finished {
    pub(crate) work: Arc<Work>,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) transition: Transition,
    /// What becomes of the limits; `None` keeps them.
    pub(crate) limits: Option<Limits>,
    pub(crate) held: Held,
    /// How often the store refused an outcome of this step.
    pub(crate) refused: u32,
    /// Where the executor waits to run ahead.
    onward: Option<oneshot::Sender<Onward>>,
}

/// The capacity that a step takes, from its claim until the fate of its outcome is known.
pub(crate) struct Held {
    /// Of its queue.
    pub(crate) slot: Slot,
    /// Of a gate.
    pub(crate) permit: Option<Permit>,
}

/// An instance that goes on in the worker that has it, and the capacity that it keeps.
pub(crate) struct Onward {
    pub(crate) instance: ClaimedInstance,
    pub(crate) held: Held,
}

impl Finished {
    pub(crate) fn new(
        work: Arc<Work>,
        handler: Arc<dyn Handler>,
        worker: Arc<Worker>,
        transition: Transition,
        limits: Option<Limits>,
        held: Held,
    ) -> Self {
        Self {
            work,
            handler,
            worker,
            transition,
            limits,
            held,
            refused: 0,
            onward: None,
        }
    }

    /// Keeps the slot of the step that ended for the next one, and says when that may run.
    pub(crate) fn run_ahead(&mut self) -> oneshot::Receiver<Onward> {
        let (sender, receiver) = oneshot::channel();
        self.onward = Some(sender);
        receiver
    }

    /// Does not run ahead: the next step goes through the queue, and the slot of this one only waits for the commit.
    pub(crate) fn leave(&mut self) {
        self.onward = None;
        self.held.slot.ran();
        if let Transition::Ahead { step, state } = &self.transition {
            self.transition = Transition::Next {
                step: step.clone(),
                state: state.clone(),
                delay: std::time::Duration::ZERO,
            };
        }
    }

    /// Ends otherwise than the step said.
    pub(crate) fn becomes(&mut self, transition: Transition) {
        self.transition = transition;
        self.limits = None;
        self.leave();
    }

    pub(crate) fn commit(&self) -> Commit {
        Commit {
            limits: self.limits.clone(),
            ..Commit::of(&self.work.instance, self.transition.clone())
        }
    }

    /// Hands the instance back to its executor, after it was claimed again under this number.
    pub(crate) fn go_on(self, claim: ClaimNumber) {
        let (Some(onward), Transition::Ahead { step, state }) = (self.onward, self.transition) else {
            return;
        };
        let before = &self.work.instance;
        let limits = self.limits.unwrap_or_else(|| before.limits.clone());
        let cancelled = self.work.context.cancel_requested();
        let instance = ClaimedInstance {
            id: before.id,
            fence: Fence {
                claim,
                seq: before.fence.seq.wrapping_add(1),
            },
            machine: before.machine,
            step,
            state,
            attempt: 0,
            crashes: 0,
            visit: before.visit.saturating_add(1),
            coordination: before.coordination.ahead(cancelled),
            // A key that is kept is held as before; a new one is of a gate, or it would not run ahead (rule RUN-3).
            gated: before.gated || limits.concurrency != before.limits.concurrency,
            limits,
        };
        // The executor waits for it as long as its runtime lives.
        let _ = onward.send(Onward {
            instance,
            held: self.held,
        });
    }
}
