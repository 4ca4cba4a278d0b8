//! Runs one claimed instance and hands its outcome to the committer.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::committer::{Committer, Finished};
use super::slots::Slot;
use super::worker::Worker;
use crate::context::Context;
use crate::observe;
use crate::registry::{Handler, Registry, Work};
use crate::store::{ClaimedInstance, Transition};

/// What every execution of an engine needs.
pub(crate) struct Executor {
    pub(crate) registry: Registry,
    pub(crate) committer: Committer,
    /// Trips when the engine stops: what was claimed and has not started is given back.
    pub(crate) stop: CancellationToken,
    /// Trips when a shutdown has waited long enough: running steps are dropped and given back.
    pub(crate) give_up: CancellationToken,
}

impl Executor {
    /// Runs an instance in a task of its own.
    pub(crate) fn start(self: &Arc<Self>, worker: &Arc<Worker>, instance: ClaimedInstance, mut slot: Slot) {
        let Some((machine, handler)) = self.registry.get(instance.machine) else {
            // A store that answers with a machine that was not asked for is a bug; the lease gives it back.
            tracing::error!(instance = %instance.id, machine = instance.machine, "unknown machine index");
            return;
        };
        let context = Context {
            id: instance.id,
            machine: machine.clone(),
            step: instance.step.clone(),
            attempt: instance.attempt,
            crashes: instance.crashes,
            stopping: worker.stopping.clone(),
        };
        let work = Arc::new(Work { instance, context });
        let (executor, worker, handler) = (Arc::clone(self), Arc::clone(worker), Arc::clone(handler));
        let span = observe::step_span(&work.context);
        let task = async move {
            let transition = executor.run(&handler, &work).await;
            slot.ran();
            executor
                .committer
                .send(Finished::new(work, handler, worker, transition, slot));
        };
        tokio::spawn(task.instrument(span));
    }

    async fn run(&self, handler: &Arc<dyn Handler>, work: &Arc<Work>) -> Transition {
        if self.stop.is_cancelled() {
            // A claim that was in flight when the shutdown began (see OPS-2).
            return Transition::GiveBack;
        }
        let started = Instant::now();
        // The step's future is dropped before the instance is given back (see OPS-2).
        let finished = tokio::select! {
            biased;
            () = self.give_up.cancelled() => None,
            transition = handler.run(Arc::clone(work)) => Some(transition),
        };
        let transition = finished.unwrap_or(Transition::GiveBack);
        observe::step_ran(&work.context.machine, &transition, started.elapsed());
        transition
    }
}
