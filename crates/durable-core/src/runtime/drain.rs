//! Runs machines inline, for tests.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::builder::EngineBuilder;
use super::worker::ClaimBook;
use crate::context::StepTokens;
use crate::error::{Failure, FailureKind, StartError, StoreError};
use crate::registry::{Ran, Work};
use crate::store::{
    BringBack, ClaimRequest, ClaimedInstance, Commit, CommitFate, CommitRequest, Committed, LimitKey, Limits,
    NewWorker, Roles, Transition,
};
use crate::types::{ClaimNumber, ConcurrencyKey, InstanceId, QueueName, WorkerId};

/// What a drain did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Steps run, by machine and step: `"checkout.charge"`.
    pub steps: BTreeMap<String, u64>,
    /// Outcomes committed, by name: `"next"`, `"ahead"`, `"await"`, `"schedule_children"`, `"retry"`, `"done"`,
    /// `"failed"`, `"cancelled"`.
    pub outcomes: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// How often outcomes of this name were committed.
    #[must_use]
    pub fn count(&self, outcome: &str) -> u64 {
        self.outcomes.get(outcome).copied().unwrap_or(0)
    }

    /// How many steps ran.
    #[must_use]
    pub fn steps_run(&self) -> u64 {
        self.steps.values().sum()
    }
}

/// Why a drain ended early. What it had committed by then stands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// The configuration.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A machine that never ends.
    #[error(
        "{max_steps} steps ran and more are runnable, the last was {last}; does a machine never end? If this \
         many steps are right, raise the limit with max_steps"
    )]
    Runaway {
        /// The limit.
        max_steps: u64,
        /// The machine and step that ran last.
        last: String,
    },
    /// An outcome could not be committed.
    #[error(
        "the outcome of instance {id} ({step}) could not be committed: another transaction holds its row; \
         commit or roll back the transactions of the test before the drain"
    )]
    Locked {
        /// The instance.
        id: InstanceId,
        /// Its machine and step.
        step: String,
    },
}

/// How many steps a drain runs, unless told otherwise.
const DEFAULT_MAX_STEPS: u64 = 10_000;
/// A lease that no test outlives.
const DRAIN_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
/// How often an outcome is offered while another transaction holds the row, and the pause in between.
const COMMIT_TRIES: u32 = 100;
const COMMIT_PAUSE: Duration = Duration::from_millis(10);

/// Runs machines inline, for tests; from [`EngineBuilder::drain`]. Await it to run it.
///
/// It runs what the engine would run, one step after the other, in the caller's task, through the real claim and
/// commit, until nothing is left. Delays are collapsed: when nothing is due, everything that waits for its time
/// (`run_in`, `run_at`, the delay of an outcome, the backoff of a job) becomes due at once, whatever its time. No
/// role of the engine is started.
///
/// What waits for signals stays parked, and so does what waits for children that stay parked: send the signal, or let
/// the timeout pass with [`Client::fire_deadline`](crate::Client::fire_deadline), and drain again.
///
/// # Errors
/// [`DrainError`]: the configuration, the store, or more than [`max_steps`](Self::max_steps) steps.
///
/// # Cancel safety
/// If it is dropped midway, what it committed stands, and the instance whose step ran stays executing.
#[must_use = "a drain does nothing until it is awaited"]
pub struct Drain {
    builder: EngineBuilder,
    max_steps: u64,
    due_only: bool,
}

impl Drain {
    pub(crate) const fn new(builder: EngineBuilder) -> Self {
        Self {
            builder,
            max_steps: DEFAULT_MAX_STEPS,
            due_only: false,
        }
    }

    /// The most steps to run before the drain gives up on machines that never end. Default 10,000.
    pub const fn max_steps(mut self, max_steps: u64) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// Runs only what is due, and leaves what waits for its time as it is, so that a test can look at it.
    pub const fn due_only(mut self) -> Self {
        self.due_only = true;
        self
    }

    async fn run(self) -> Result<Tally, DrainError> {
        self.builder.check()?;
        let worker = NewWorker {
            name: self.builder.name.clone(),
            lease: DRAIN_LEASE,
            process: None,
            roles: Roles::NONE,
        };
        let worker = self.builder.store.register(worker).await?;
        let mut run = Run {
            builder: self.builder,
            worker,
            claims: ClaimBook::default(),
            tally: Tally::default(),
        };
        let result = run.run(self.max_steps, self.due_only).await;
        let store = &run.builder.store;
        let ended = store
            .commit(CommitRequest::new(worker, [], run.claims.take_closed()))
            .await;
        let retired = store.retire(worker).await;
        result?;
        ended?;
        retired?;
        Ok(run.tally)
    }
}

impl IntoFuture for Drain {
    type Output = Result<Tally, DrainError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// A drain that runs.
struct Run {
    builder: EngineBuilder,
    worker: WorkerId,
    claims: ClaimBook,
    tally: Tally,
}

impl Run {
    async fn run(&mut self, max_steps: u64, due_only: bool) -> Result<(), DrainError> {
        let queues: Vec<QueueName> = self
            .builder
            .queues
            .iter()
            .filter_map(|queue| QueueName::new(queue.name.clone()).ok())
            .collect();
        let mut last = String::new();
        loop {
            let mut found = false;
            for queue in &queues {
                while let Some(instance) = self.claim(queue).await? {
                    found = true;
                    if self.tally.steps_run() >= max_steps {
                        self.give_back(instance.fence.claim).await?;
                        return Err(DrainError::Runaway { max_steps, last });
                    }
                    last = self.step(instance).await?;
                }
            }
            if !found && (due_only || !self.make_due(&queues).await?) {
                return Ok(());
            }
        }
    }

    async fn give_back(&self, claim: ClaimNumber) -> Result<(), StoreError> {
        let freed = self.builder.store.release(self.worker, vec![claim]).await?;
        self.bring_back(freed).await?;
        self.claims.settle(claim);
        Ok(())
    }

    async fn make_due(&self, queues: &[QueueName]) -> Result<bool, StoreError> {
        let mut moved = 0;
        for queue in queues {
            moved += self
                .builder
                .store
                .make_due(queue.clone(), self.builder.registry.keys())
                .await?;
        }
        Ok(moved > 0)
    }

    async fn claim(&self, queue: &QueueName) -> Result<Option<ClaimedInstance>, StoreError> {
        loop {
            let number = self.claims.ask();
            let request = ClaimRequest {
                worker: self.worker,
                number,
                queue: queue.clone(),
                machines: self.builder.registry.keys(),
                limit: 1,
            };
            let mut claimed = self.builder.store.claim(request).await?;
            self.claims.answered(number, claimed.instances.len());
            if claimed.instances.is_empty() && claimed.set_aside > 0 {
                // There may be more behind those that wait for a key.
                continue;
            }
            return Ok(claimed.instances.pop());
        }
    }

    /// Runs and commits one step; the name of the step.
    async fn step(&mut self, instance: ClaimedInstance) -> Result<String, DrainError> {
        let Some((machine, handler)) = self.builder.registry.get(instance.machine) else {
            return Ok(String::new());
        };
        let name = format!("{}.{}", machine.name(), instance.step);
        let work = Work::new(instance, machine.clone(), StepTokens::default());
        let claim = work.instance.fence.claim;
        let (transition, fate) = if work.instance.coordination.cancel_requested {
            self.offer(&work, Transition::cancelled().into()).await
        } else {
            let ran = handler.run(Arc::clone(&work)).await;
            *self.tally.steps.entry(name.clone()).or_default() += 1;
            match self.offer(&work, ran).await {
                (_, Err(StoreError::Refused { message })) => {
                    let text = format!("the store refused the outcome: {message}");
                    let failure = Failure::new(FailureKind::Encoding, text);
                    let ran = handler.handle(Arc::clone(&work), failure).await;
                    self.offer(&work, ran).await
                }
                other => other,
            }
        };
        match fate {
            Ok(CommitFate::Committed) => {
                *self.tally.outcomes.entry(transition.as_str()).or_default() += 1;
                self.claims.settle(claim);
                Ok(name)
            }
            Ok(CommitFate::Stale | CommitFate::CancelRequested) => {
                self.claims.settle(claim);
                Ok(name)
            }
            // The claim stays open: closing it would strand the instance.
            Ok(CommitFate::Locked) => Err(DrainError::Locked {
                id: work.instance.id,
                step: name,
            }),
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.give_back(claim).await;
                Err(error.into())
            }
        }
    }

    /// Commits how a step ended, in its own transaction if it has one; as cancelled if that was asked for.
    async fn offer(&self, work: &Work, ran: Ran) -> (Transition, Result<CommitFate, StoreError>) {
        let transition = ran.transition;
        let limits = ran.limits.and_then(|change| change.of(&work.instance.limits));
        let fate = match ran.transaction {
            Some(transaction) => {
                let outcome = outcome(work, &transition, limits.as_ref());
                match transaction.commit(self.worker, outcome).await {
                    Ok(committed) => self.committed(committed).await,
                    Err(error) => Err(error),
                }
            }
            None => self.commit(work, &transition, limits.as_ref()).await,
        };
        if matches!(fate, Ok(CommitFate::CancelRequested)) {
            let cancelled = Transition::cancelled();
            let fate = self.commit(work, &cancelled, None).await;
            return (cancelled, fate);
        }
        (transition, fate)
    }

    /// Commits one outcome; tries again for a while as long as its row is locked.
    async fn commit(
        &self,
        work: &Work,
        transition: &Transition,
        limits: Option<&Limits>,
    ) -> Result<CommitFate, StoreError> {
        for _ in 0..COMMIT_TRIES {
            let commit = outcome(work, transition, limits);
            let closed = self.claims.take_closed();
            let store = &self.builder.store;
            let committed = store.commit(CommitRequest::new(self.worker, [commit], closed.clone()));
            let committed = match committed.await {
                Ok(committed) => committed,
                Err(error) => {
                    self.claims.put_back(closed);
                    return Err(error);
                }
            };
            match self.committed(committed).await? {
                CommitFate::Locked => tokio::time::sleep(COMMIT_PAUSE).await,
                fate => return Ok(fate),
            }
        }
        Ok(CommitFate::Locked)
    }

    /// Who waited for what an outcome has freed may run, as in an engine.
    async fn committed(&self, committed: Committed) -> Result<CommitFate, StoreError> {
        self.bring_back(committed.freed).await?;
        only(&committed.fates)
    }

    async fn bring_back(&self, freed: Vec<ConcurrencyKey>) -> Result<(), StoreError> {
        if freed.is_empty() {
            return Ok(());
        }
        let keys = freed.into_iter().map(|key| BringBack {
            key: LimitKey::Concurrency(key),
            room: 1,
            unit: None,
        });
        self.builder.store.bring_back(keys.collect()).await.map(drop)
    }
}

/// What is committed of a step.
fn outcome(work: &Work, transition: &Transition, limits: Option<&Limits>) -> Commit {
    Commit {
        limits: limits.cloned(),
        ..Commit::of(&work.instance, through_the_queue(transition))
    }
}

/// A drain runs one step after the other anyway, so what asks to run ahead is simply claimed again.
fn through_the_queue(transition: &Transition) -> Transition {
    match transition.clone() {
        Transition::Ahead { step, state } => Transition::Next {
            step,
            state,
            delay: Duration::ZERO,
        },
        other => other,
    }
}

fn only(fates: &[CommitFate]) -> Result<CommitFate, StoreError> {
    fates.first().copied().ok_or_else(|| StoreError::Fatal {
        message: "the store gave no answer for an outcome".to_owned(),
    })
}
