//! Group commit: what queues up behind a running commit is the next one; no timer (rules OUT-1 to OUT-3).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::local::Local;
use super::slots::{Slot, free_together};
use super::worker::Worker;
use crate::error::{Failure, FailureKind, StoreError};
use crate::observe;
use crate::registry::{Handler, Work};
use crate::store::{Commit, CommitFate, Resolution, Store, Transition};
use crate::types::QueueName;

/// The most outcomes of one commit: beyond this a larger batch saves nothing and only holds locks longer.
const LARGEST_BATCH: usize = 500;
/// The first pause after a failed call; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause after a failed call, and before a locked row is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// An outcome on its way into the store.
pub(crate) struct Finished {
    work: Arc<Work>,
    handler: Arc<dyn Handler>,
    worker: Arc<Worker>,
    transition: Transition,
    slot: Slot,
    /// How often the store refused an outcome of this step.
    refused: u32,
    /// How long to wait before it is tried again, while another transaction holds its row.
    pause: Duration,
}

impl Finished {
    pub(crate) fn new(
        work: Arc<Work>,
        handler: Arc<dyn Handler>,
        worker: Arc<Worker>,
        transition: Transition,
        slot: Slot,
    ) -> Self {
        Self {
            work,
            handler,
            worker,
            transition,
            slot,
            refused: 0,
            pause: FIRST_PAUSE,
        }
    }

    fn commit(&self) -> Commit {
        let instance = &self.work.instance;
        Commit {
            id: instance.id,
            fence: instance.fence,
            transition: self.transition.clone(),
        }
    }
}

/// Where outcomes are handed in. Bounded by the slots that they hold.
#[derive(Clone)]
pub(crate) struct Committer {
    sender: mpsc::UnboundedSender<Finished>,
}

impl Committer {
    /// Starts the role.
    pub(crate) fn start(store: Arc<dyn Store>, local: Arc<Local>) -> Self {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let committer = Self { sender };
        let role = Role {
            store,
            local,
            again: committer.sender.downgrade(),
        };
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(LARGEST_BATCH);
            while receiver.recv_many(&mut batch, LARGEST_BATCH).await > 0 {
                while let Some(first) = batch.first() {
                    // Only a process that lost its lease has outcomes of two workers.
                    let worker = first.worker.id;
                    let (same, rest) = batch.drain(..).partition(|finished| finished.worker.id == worker);
                    batch = rest;
                    role.commit_all(same).await;
                }
            }
        });
        committer
    }

    pub(crate) fn send(&self, finished: Finished) {
        // The role ends only after the last sender is gone.
        let _ = self.sender.send(finished);
    }
}

struct Role {
    store: Arc<dyn Store>,
    local: Arc<Local>,
    again: mpsc::WeakUnboundedSender<Finished>,
}

impl Role {
    /// Commits a batch; halves it as long as the store refuses it, down to the one outcome to blame (OUT-2).
    async fn commit_all(&self, batch: Vec<Finished>) {
        let mut batches = vec![batch];
        while let Some(mut batch) = batches.pop() {
            if let Err(refusal) = self.commit(&mut batch).await {
                if batch.len() > 1 {
                    batches.push(batch.split_off(batch.len() / 2));
                    batches.push(batch);
                } else if let Some(refused) = batch.pop() {
                    self.refuse(refused, &refusal);
                }
            }
        }
    }

    /// Commits until every outcome's fate is known, or the store refuses the batch; then nothing of what is
    /// left in `batch` was committed.
    async fn commit(&self, batch: &mut Vec<Finished>) -> Result<(), String> {
        let mut pause = FIRST_PAUSE;
        let mut uncertain = false;
        while let Some(first) = batch.first() {
            let worker = Arc::clone(&first.worker);
            let commits: Arc<[Commit]> = batch.iter().map(Finished::commit).collect();
            let closed = worker.claims.take_closed();
            let started = Instant::now();
            let error = match self.store.commit(worker.id, commits, closed.clone()).await {
                Ok(mut fates) => {
                    observe::commit(batch.len(), started.elapsed());
                    if uncertain && fates.contains(&CommitFate::Stale) {
                        self.resolve(batch, &mut fates).await;
                    }
                    self.settle(std::mem::take(batch).into_iter().zip(fates));
                    return Ok(());
                }
                Err(error) => error,
            };
            worker.claims.put_back(closed);
            observe::store_error("commit", &error);
            match error {
                StoreError::Refused { message } => return Err(message),
                StoreError::WorkerDead => {
                    self.settle(
                        std::mem::take(batch)
                            .into_iter()
                            .map(|one| (one, CommitFate::Stale)),
                    );
                    return Ok(());
                }
                StoreError::Unknown { .. } => uncertain = true,
                StoreError::Transient { .. } | StoreError::Fatal { .. } => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Tells which stale outcomes are our own commit, whose answer was lost (rule OUT-3).
    async fn resolve(&self, batch: &[Finished], fates: &mut [CommitFate]) {
        let Some(first) = batch.first() else { return };
        let asked: Vec<_> = batch
            .iter()
            .map(|one| (one.work.instance.id, one.work.instance.fence))
            .collect();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.store.resolve(first.worker.id, Vec::clone(&asked)).await {
                Ok(resolutions) => {
                    for (fate, resolution) in fates.iter_mut().zip(resolutions) {
                        if *fate == CommitFate::Stale && resolution == Resolution::Committed {
                            *fate = CommitFate::Committed;
                        }
                    }
                    return;
                }
                Err(error) => error,
            };
            observe::store_error("resolve", &error);
            if !error.is_transient() {
                // The outcome stands or not all the same; only our count of it may be wrong.
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn settle(&self, settled: impl Iterator<Item = (Finished, CommitFate)>) {
        let mut slots = Vec::new();
        let mut runnable_again: Vec<QueueName> = Vec::new();
        for (finished, fate) in settled {
            observe::outcome(&finished.work.context.machine, &finished.transition, fate);
            if fate == CommitFate::Locked {
                self.try_again(finished);
                continue;
            }
            finished.worker.claims.settle(finished.work.instance.fence.claim);
            if finished.transition.is_terminal() {
                self.local.settled(finished.work.instance.id);
            } else if fate == CommitFate::Committed
                && let Some(queue) = finished.slot.queue()
                && !runnable_again.contains(queue)
            {
                runnable_again.push(queue.clone());
            }
            slots.push(finished.slot);
        }
        free_together(slots);
        // After the slots are free, so that the claim finds room. A delayed step too: the scheduler must learn
        // when it is due.
        for queue in runnable_again {
            self.local.poke(&queue);
        }
    }

    /// Sets an outcome aside whose row another transaction holds: nobody else waits for it (rule OUT-6).
    fn try_again(&self, mut finished: Finished) {
        let Some(sender) = self.again.upgrade() else {
            return;
        };
        tokio::spawn(async move {
            tokio::time::sleep(finished.pause).await;
            finished.pause = (finished.pause * 2).min(LONGEST_PAUSE);
            let _ = sender.send(finished);
        });
    }

    /// Asks the error handler what follows an outcome that the store refused. If that is refused too, the
    /// instance fails, with a message that is always storable.
    fn refuse(&self, mut finished: Finished, message: &str) {
        observe::refused(&finished.work.context.machine);
        let Some(sender) = self.again.upgrade() else {
            return;
        };
        finished.refused += 1;
        let text = format!("the store refused the outcome: {message}");
        let failure = Failure::new(FailureKind::Encoding, text);
        tokio::spawn(async move {
            finished.transition = if finished.refused == 1 {
                finished.handler.handle(Arc::clone(&finished.work), failure).await
            } else {
                Transition::Failed { failure }
            };
            let _ = sender.send(finished);
        });
    }
}
