//! Runs one claimed instance, and what it runs ahead, and hands each outcome to the committer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::committer::Committer;
use super::finished::{Finished, Held, Onward};
use super::limits::{Decision, Limits, Permit};
use super::local::Local;
use super::running::Running;
use super::slots::Slot;
use super::worker::Worker;
use crate::context::StepTokens;
use crate::error::{Failure, FailureKind};
use crate::observe;
use crate::registry::{Handler, Ran, Registry, Work};
use crate::store::{ClaimedInstance, RateDemand, Transition};

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
    pub(crate) limits: Arc<Limits>,
    pub(crate) run_ahead: RunAheadLimit,
    /// Trips when the engine stops: what was claimed and has not started is given back.
    pub(crate) stop: CancellationToken,
    /// Trips when a shutdown has waited long enough: running steps are dropped and given back.
    pub(crate) give_up: CancellationToken,
}

impl Executor {
    /// Runs an instance of a claim, under the policies of this version. The order of the calls is the order in which
    /// steps with the same limits start.
    pub(crate) fn start(
        self: &Arc<Self>,
        worker: &Arc<Worker>,
        instance: ClaimedInstance,
        version: i64,
        slot: Slot,
    ) {
        let Some((machine, handler)) = self.registry.get(instance.machine) else {
            // A store that answers with a machine that was not asked for is a bug; the lease gives it back.
            tracing::error!(instance = %instance.id, machine = instance.machine, "unknown machine index");
            return;
        };
        let tokens = StepTokens::of(&worker.stopping);
        let registration = Running::register(&self.local, instance.id, tokens.clone());
        let admission = self.ask(&instance, version, None);
        let work = Work::new(instance, machine.clone(), tokens);
        let held = Held { slot, permit: None };
        let (executor, worker, handler) = (Arc::clone(self), Arc::clone(worker), Arc::clone(handler));
        tokio::spawn(async move {
            executor.run_on(&worker, &handler, work, held, admission).await;
            drop(registration);
        });
    }

    /// Asks for what the step needs; one that does not run needs nothing.
    fn ask(&self, instance: &ClaimedInstance, version: i64, permit: Option<&Permit>) -> Option<Admission> {
        if instance.coordination.cancel_requested || self.stop.is_cancelled() {
            return None;
        }
        self.limits.ask(instance, version, permit)
    }

    /// Runs the step, and those after it that it runs ahead.
    async fn run_on(
        &self,
        worker: &Arc<Worker>,
        handler: &Arc<dyn Handler>,
        mut work: Arc<Work>,
        mut held: Held,
        mut admission: Option<Admission>,
    ) {
        let started = Instant::now();
        let mut steps_left = self.run_ahead.steps;
        loop {
            let span = observe::step_span(&work.context);
            let ran = match admitted(admission).await {
                Ok(permit) => {
                    held.permit = permit.or(held.permit);
                    let run = self.run(handler, &work, held.permit.as_ref());
                    run.instrument(span).await
                }
                Err(transition) => transition.into(),
            };
            let limits = ran.limits.and_then(|change| change.of(&work.instance.limits));
            let (machine, tokens) = (work.context.machine.clone(), work.context.tokens.clone());
            let ahead = matches!(ran.transition, Transition::Ahead { .. });
            let (handler, worker) = (Arc::clone(handler), Arc::clone(worker));
            let mut finished = Finished::new(work, handler, worker, ran.transition, limits, held);
            if let Some(transaction) = ran.transaction {
                finished.leave();
                self.committer.send_alone(finished, transaction);
                return;
            }
            // A worker that stops, or whose lease seems lost, is told through its token.
            let may_go_on = steps_left > 0
                && started.elapsed() < self.run_ahead.time
                && !finished.worker.stopping.is_cancelled();
            if !(ahead && may_go_on && self.limits.may_run_ahead(&finished)) {
                finished.leave();
                self.committer.send(finished);
                return;
            }
            let onward = finished.run_ahead();
            self.committer.send(finished);
            let Ok(Onward { instance, held: kept }) = onward.await else {
                return;
            };
            steps_left -= 1;
            held = kept;
            // What the next step does not need goes back now, once (rule RUN-2).
            held.permit = held
                .permit
                .filter(|permit| permit.gate() == instance.limits.concurrency.as_ref());
            admission = self.ask(&instance, 0, held.permit.as_ref());
            work = Work::new(instance, machine, tokens);
        }
    }

    /// Runs the step, unless there is a reason not to.
    async fn run(&self, handler: &Arc<dyn Handler>, work: &Arc<Work>, permit: Option<&Permit>) -> Ran {
        if work.instance.coordination.cancel_requested {
            return Transition::cancelled().into();
        }
        if self.stop.is_cancelled() {
            // A claim that was in flight when the shutdown began (see OPS-2).
            return Transition::GiveBack.into();
        }
        let started = Instant::now();
        let lost = async {
            match permit {
                Some(permit) => permit.lost.cancelled().await,
                None => std::future::pending().await,
            }
        };
        // The step's future is dropped before the instance is given back (see OPS-2).
        let finished = tokio::select! {
            biased;
            () = self.give_up.cancelled() => None,
            () = lost => None,
            ran = self.run_checked(handler, work) => Some(ran),
        };
        let ran = finished.unwrap_or_else(|| Transition::GiveBack.into());
        observe::step_ran(&work.context.machine, &ran.transition, started.elapsed());
        ran
    }

    /// Runs the step; an outcome with limits that can never be met goes to the error handler (rule LIM-3).
    async fn run_checked(&self, handler: &Arc<dyn Handler>, work: &Arc<Work>) -> Ran {
        let ran = handler.run(Arc::clone(work)).await;
        let Some(refused) = self.limits.refuses(demands(&ran)).await else {
            return ran;
        };
        let failure = Failure::new(FailureKind::Limit, refused);
        let handled = handler.handle(Arc::clone(work), failure).await;
        match self.limits.refuses(demands(&handled)).await {
            Some(refused) => {
                let failure = Failure::new(FailureKind::Limit, refused);
                Transition::Failed { failure }.into()
            }
            None => handled,
        }
    }
}

/// A decision that is awaited.
type Admission = tokio::sync::oneshot::Receiver<Decision>;

/// How long a step rests that can never start as it is.
const UNUSABLE_REST: Duration = Duration::from_secs(60);

/// What the step got; else, what becomes of its instance.
async fn admitted(admission: Option<Admission>) -> Result<Option<Permit>, Transition> {
    let Some(admission) = admission else {
        return Ok(None);
    };
    match admission.await {
        Ok(Decision::Go(permit)) => Ok(permit),
        Ok(Decision::Wait { by, look_in }) => Err(Transition::Blocked { by, look_in }),
        Ok(Decision::Unusable(failure)) => Err(Transition::Retry {
            state: None,
            delay: UNUSABLE_REST,
            failure: Some(failure),
        }),
        // The engine is gone.
        Err(_closed) => Err(Transition::GiveBack),
    }
}

/// The rate limits that an outcome names, for the next step and for children.
fn demands(ran: &Ran) -> Vec<RateDemand> {
    let own = ran.limits.as_ref().and_then(|change| change.rate.clone());
    let children = match &ran.transition {
        Transition::ScheduleChildren { children, .. } => children.as_slice(),
        _ => &[],
    };
    let theirs = children.iter().filter_map(|child| child.limits.rate.clone());
    own.into_iter().chain(theirs).collect()
}
