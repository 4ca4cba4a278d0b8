//! Runs one claimed instance, and what it runs ahead, and hands each outcome to the committer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::committer::Committer;
use super::finished::{Finished, Onward};
use super::local::Local;
use super::running::Running;
use super::slots::Slot;
use super::worker::Worker;
use crate::context::StepTokens;
use crate::observe;
use crate::registry::{Handler, Ran, Registry, Work};
use crate::store::{ClaimedInstance, Transition};

/// How far a worker runs ahead (rule RUN-4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunAheadLimit {
    /// How many steps may follow the claimed one.
    pub(crate) steps: u32,
    /// How long after the start of the claimed step another one may start.
    pub(crate) time: Duration,
}

/// What every execution of an engine needs.
pub(crate) struct Executor {
    pub(crate) registry: Registry,
    pub(crate) local: Arc<Local>,
    pub(crate) committer: Committer,
    pub(crate) run_ahead: RunAheadLimit,
    /// Trips when the engine stops: what was claimed and has not started is given back.
    pub(crate) stop: CancellationToken,
    /// Trips when a shutdown has waited long enough: running steps are dropped and given back.
    pub(crate) give_up: CancellationToken,
}

impl Executor {
    /// Runs an instance in a task of its own.
    pub(crate) fn start(self: &Arc<Self>, worker: &Arc<Worker>, instance: ClaimedInstance, slot: Slot) {
        let Some((machine, handler)) = self.registry.get(instance.machine) else {
            // A store that answers with a machine that was not asked for is a bug; the lease gives it back.
            tracing::error!(instance = %instance.id, machine = instance.machine, "unknown machine index");
            return;
        };
        let tokens = StepTokens::of(&worker.stopping);
        let registration = Running::register(&self.local, instance.id, tokens.clone());
        let work = Work::new(instance, machine.clone(), tokens);
        let (executor, worker, handler) = (Arc::clone(self), Arc::clone(worker), Arc::clone(handler));
        tokio::spawn(async move {
            executor.run_on(&worker, &handler, work, slot).await;
            drop(registration);
        });
    }

    /// Runs a step, and those that follow it ahead, all in the same slot.
    async fn run_on(
        &self,
        worker: &Arc<Worker>,
        handler: &Arc<dyn Handler>,
        mut work: Arc<Work>,
        mut slot: Slot,
    ) {
        let started = Instant::now();
        let mut steps_left = self.run_ahead.steps;
        loop {
            let span = observe::step_span(&work.context);
            let ran = self.run(handler, &work).instrument(span).await;
            let (machine, tokens) = (work.context.machine.clone(), work.context.tokens.clone());
            let ahead = matches!(ran.transition, Transition::Ahead { .. });
            let (handler, worker) = (Arc::clone(handler), Arc::clone(worker));
            let mut finished = Finished::new(work, handler, worker, ran.transition, slot);
            if let Some(transaction) = ran.transaction {
                finished.leave();
                self.committer.send_alone(finished, transaction);
                return;
            }
            // A worker that stops, or whose lease seems lost, is told through its token.
            let may_go_on = steps_left > 0
                && started.elapsed() < self.run_ahead.time
                && !finished.worker.stopping.is_cancelled();
            if !(ahead && may_go_on) {
                finished.leave();
                self.committer.send(finished);
                return;
            }
            let onward = finished.run_ahead();
            self.committer.send(finished);
            let Ok(Onward { instance, slot: kept }) = onward.await else {
                return;
            };
            steps_left -= 1;
            slot = kept;
            work = Work::new(instance, machine, tokens);
        }
    }

    async fn run(&self, handler: &Arc<dyn Handler>, work: &Arc<Work>) -> Ran {
        if work.instance.coordination.cancel_requested {
            return Transition::cancelled().into();
        }
        if self.stop.is_cancelled() {
            // A claim that was in flight when the shutdown began (see OPS-2).
            return Transition::GiveBack.into();
        }
        let started = Instant::now();
        // The step's future is dropped before the instance is given back (see OPS-2).
        let finished = tokio::select! {
            biased;
            () = self.give_up.cancelled() => None,
            ran = handler.run(Arc::clone(work)) => Some(ran),
        };
        let ran = finished.unwrap_or_else(|| Transition::GiveBack.into());
        observe::step_ran(&work.context.machine, &ran.transition, started.elapsed());
        ran
    }
}
