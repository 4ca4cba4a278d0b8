//! The patient lane: outcomes whose row another transaction held, and those that may have to wait for keys. Nobody else
//! waits for them, and a row that is always busy is had one day, as they take their turn (rules OUT-6, SIG-5).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::attempt::{Attempt, FIRST_PAUSE, LONGEST_PAUSE, commit_once};
use super::committer::{LARGEST_BATCH, by_worker};
use super::finished::Finished;
use super::settler::Settler;
use crate::store::Patience;

pub(super) struct Patient {
    pub(super) settler: Arc<Settler>,
    pub(super) receiver: mpsc::UnboundedReceiver<Finished>,
}

impl Patient {
    /// Commits what is there, in turns: taking its turn for the locks, where one that cannot be had fails all; then
    /// without waiting, so that only those are left that cannot be had.
    pub(super) async fn run(mut self) {
        let mut waiting: Vec<Finished> = Vec::new();
        let mut pause = FIRST_PAUSE;
        loop {
            if waiting.is_empty() {
                pause = FIRST_PAUSE;
                if self.receiver.recv_many(&mut waiting, LARGEST_BATCH).await == 0 {
                    return;
                }
            }
            self.gather(&mut waiting);
            waiting = self.round(waiting, Patience::Wait).await;
            if waiting.is_empty() {
                continue;
            }
            waiting = self.round(waiting, Patience::Skip).await;
            if !waiting.is_empty() {
                self.rest(&mut waiting, pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    fn gather(&mut self, waiting: &mut Vec<Finished>) {
        while waiting.len() < LARGEST_BATCH {
            let Ok(finished) = self.receiver.try_recv() else {
                return;
            };
            waiting.push(finished);
        }
    }

    /// Waits before the next turn. What comes meanwhile is committed without waiting for those that are here.
    async fn rest(&mut self, waiting: &mut Vec<Finished>, pause: Duration) {
        let until = Instant::now() + pause;
        while let Ok(Some(finished)) = timeout_at(until, self.receiver.recv()).await {
            let mut new = vec![finished];
            self.gather(&mut new);
            waiting.extend(self.round(new, Patience::Skip).await);
        }
        // Without senders there is nothing to receive, and no pause.
        tokio::time::sleep_until(until).await;
    }

    /// One try of each; those that are left.
    async fn round(&self, waiting: Vec<Finished>, patience: Patience) -> Vec<Finished> {
        let mut left = Vec::new();
        for batch in by_worker(waiting) {
            left.extend(self.attempt(batch, patience).await);
        }
        left
    }

    /// One try; if the store refuses one of them, one try of each alone (rule OUT-2).
    async fn attempt(&self, batch: Vec<Finished>, patience: Patience) -> Vec<Finished> {
        let mut left = Vec::new();
        let mut batches = vec![batch];
        while let Some(mut batch) = batches.pop() {
            let settler = &self.settler;
            match commit_once(settler, &batch, patience).await {
                Attempt::Known { fates, ahead } => {
                    let known = settler.settle(batch, fates, ahead);
                    left.extend(known.locked);
                    left.extend(known.open);
                }
                Attempt::NotNow => left.extend(batch),
                Attempt::Refused(message) if batch.len() == 1 => {
                    if let Some(refused) = batch.pop() {
                        settler.refuse(refused, &message);
                    }
                }
                Attempt::Refused(_) => batches.extend(batch.into_iter().map(|one| vec![one])),
            }
        }
        left
    }
}
