//! Runs machines inline, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::builder::EngineBuilder;
use super::worker::ClaimBook;
use crate::context::Context;
use crate::error::{Failure, FailureKind, StartError, StoreError};
use crate::registry::Work;
use crate::store::{ClaimRequest, ClaimedInstance, Commit, CommitFate, NewWorker, Transition};
use crate::types::{QueueName, WorkerId};

/// What a drain did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Steps run, by machine and step: `"checkout.charge"`.
    pub steps: BTreeMap<String, u64>,
    /// Outcomes committed, by name: `"next"`, `"retry"`, `"done"`, `"failed"`, `"cancelled"`.
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

/// Why a drain ended early.
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
    #[error("{max_steps} steps ran and more are runnable, the last of {last}; does a machine never end?")]
    Runaway {
        /// The limit that was given.
        max_steps: u64,
        /// The machine and step that ran last.
        last: String,
    },
}

/// A lease that no test outlives.
const DRAIN_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) async fn drain(builder: EngineBuilder, max_steps: u64) -> Result<Tally, DrainError> {
    let worker = NewWorker {
        name: builder.name.clone(),
        lease: DRAIN_LEASE,
        process: None,
    };
    let worker = builder.store.register(worker).await?;
    let mut drain = Drain {
        builder,
        worker,
        claims: ClaimBook::default(),
        tally: Tally::default(),
    };
    let result = drain.run(max_steps).await;
    let _ = drain
        .builder
        .store
        .commit(worker, Arc::new([]), drain.claims.take_closed())
        .await;
    drain.builder.store.retire(worker).await?;
    result.map(|()| drain.tally)
}

struct Drain {
    builder: EngineBuilder,
    worker: WorkerId,
    claims: ClaimBook,
    tally: Tally,
}

impl Drain {
    async fn run(&mut self, max_steps: u64) -> Result<(), DrainError> {
        let queues: Vec<QueueName> = self
            .builder
            .queues
            .iter()
            .filter_map(|queue| QueueName::new(queue.name.clone()).ok())
            .collect();
        loop {
            let mut found = false;
            for queue in &queues {
                while let Some(instance) = self.claim(queue).await? {
                    found = true;
                    let last = self.step(instance).await?;
                    if self.tally.steps_run() >= max_steps {
                        return Err(DrainError::Runaway { max_steps, last });
                    }
                }
            }
            if !found && !self.make_due(&queues).await? {
                return Ok(());
            }
        }
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
        Ok(claimed.instances.pop())
    }

    /// Runs and commits one step; the name of the step.
    async fn step(&mut self, instance: ClaimedInstance) -> Result<String, StoreError> {
        let Some((machine, handler)) = self.builder.registry.get(instance.machine) else {
            return Ok(String::new());
        };
        let name = format!("{}.{}", machine.name(), instance.step);
        let context = Context {
            id: instance.id,
            machine: machine.clone(),
            step: instance.step.clone(),
            attempt: instance.attempt,
            crashes: instance.crashes,
            stopping: CancellationToken::new(),
        };
        let work = Arc::new(Work { instance, context });
        let transition = handler.run(Arc::clone(&work)).await;
        *self.tally.steps.entry(name.clone()).or_default() += 1;
        let (transition, fate) = match self.commit(&work, transition).await {
            Err(StoreError::Refused { message }) => {
                let text = format!("the store refused the outcome: {message}");
                let failure = Failure::new(FailureKind::Encoding, text);
                let handled = handler.handle(Arc::clone(&work), failure).await;
                self.commit(&work, handled).await?
            }
            other => other?,
        };
        self.claims.settle(work.instance.fence.claim);
        if fate == Some(CommitFate::Committed) {
            *self.tally.outcomes.entry(transition.as_str()).or_default() += 1;
        }
        Ok(name)
    }

    async fn commit(
        &self,
        work: &Work,
        transition: Transition,
    ) -> Result<(Transition, Option<CommitFate>), StoreError> {
        let instance = &work.instance;
        let commit = Commit {
            id: instance.id,
            fence: instance.fence,
            transition: transition.clone(),
        };
        let closed = self.claims.take_closed();
        let fates = self
            .builder
            .store
            .commit(self.worker, Arc::new([commit]), closed)
            .await?;
        Ok((transition, fates.first().copied()))
    }
}
