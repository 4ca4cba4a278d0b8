//! Group commit: what queues up behind a running commit is the next one; no timer (rules OUT-1 to OUT-3).

use std::sync::Arc;

use tokio::sync::mpsc;

use super::attempt::{Attempt, FIRST_PAUSE, LONGEST_PAUSE, commit_once};
use super::finished::Finished;
use super::limits::Limits;
use super::local::Local;
use super::patient::Patient;
use super::settler::Settler;
use crate::store::{OutcomeTransaction, Patience, Store};

/// The most outcomes of one commit: beyond this a larger batch saves nothing and only holds locks longer.
pub(crate) const LARGEST_BATCH: usize = 500;

/// Where outcomes are handed in. Bounded by the slots that they hold. The lanes end after the last of these is gone.
#[derive(Clone)]
pub(crate) struct Committer {
    settler: Arc<Settler>,
    _lanes: [mpsc::UnboundedSender<Finished>; 2],
}

impl Committer {
    /// Starts the lanes.
    pub(crate) fn start(store: Arc<dyn Store>, local: Arc<Local>, limits: Arc<Limits>) -> Self {
        let (group, group_receiver) = mpsc::unbounded_channel();
        let (patient, patient_receiver) = mpsc::unbounded_channel();
        let settler = Arc::new(Settler {
            store,
            local,
            limits,
            group: group.downgrade(),
            patient: patient.downgrade(),
        });
        let patient_lane = Patient {
            settler: Arc::clone(&settler),
            receiver: patient_receiver,
        };
        tokio::spawn(patient_lane.run());
        let group_lane = Group {
            settler: Arc::clone(&settler),
            patient: patient.clone(),
        };
        tokio::spawn(group_lane.run(group_receiver));
        Self {
            settler,
            _lanes: [group, patient],
        }
    }

    /// Commits an outcome together with others.
    pub(crate) fn send(&self, finished: Finished) {
        self.settler.offer(finished);
    }

    /// Commits an outcome in the transaction of its step, in a task of its own.
    pub(crate) fn send_alone(&self, finished: Finished, transaction: Box<dyn OutcomeTransaction>) {
        tokio::spawn(Arc::clone(&self.settler).commit_in(transaction, finished));
    }
}

/// The outcomes of each worker: only a process that lost its lease has outcomes of two.
pub(crate) fn by_worker(mut batch: Vec<Finished>) -> Vec<Vec<Finished>> {
    let mut batches = Vec::new();
    while let Some(first) = batch.first() {
        let worker = first.worker.id;
        let (same, rest) = batch
            .into_iter()
            .partition(|finished| finished.worker.id == worker);
        batches.push(same);
        batch = rest;
    }
    batches
}

/// The lane of nearly all outcomes.
struct Group {
    settler: Arc<Settler>,
    patient: mpsc::UnboundedSender<Finished>,
}

impl Group {
    async fn run(self, mut receiver: mpsc::UnboundedReceiver<Finished>) {
        let mut batch = Vec::new();
        while receiver.recv_many(&mut batch, LARGEST_BATCH).await > 0 {
            for same in by_worker(std::mem::take(&mut batch)) {
                self.commit_all(same).await;
            }
        }
    }

    /// Commits a batch; halves it as long as the store refuses it, down to the one outcome to blame (OUT-2).
    async fn commit_all(&self, batch: Vec<Finished>) {
        let mut batches = vec![batch];
        while let Some(mut batch) = batches.pop() {
            if let Err(refusal) = self.commit(&mut batch).await {
                if batch.len() > 1 {
                    batches.push(batch.split_off(batch.len() / 2));
                    batches.push(batch);
                } else if let Some(refused) = batch.pop() {
                    self.settler.refuse(refused, &refusal);
                }
            }
        }
    }

    /// Commits until every outcome's fate is known, or the store refuses the batch; then nothing of what is
    /// left in `batch` was committed.
    async fn commit(&self, batch: &mut Vec<Finished>) -> Result<(), String> {
        let mut pause = FIRST_PAUSE;
        let settler = &self.settler;
        while !batch.is_empty() {
            match commit_once(settler, batch, Patience::Skip).await {
                Attempt::Known { fates, ahead } => {
                    let left = settler.settle(std::mem::take(batch), fates, ahead);
                    left.locked.into_iter().for_each(|locked| self.set_aside(locked));
                    *batch = left.open;
                    continue;
                }
                Attempt::Refused(message) => return Err(message),
                Attempt::NotNow => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Sets an outcome aside whose row another transaction holds: nobody else waits for it (rule OUT-6).
    fn set_aside(&self, mut locked: Finished) {
        locked.leave();
        // The patient lane lives as long as this sender.
        let _ = self.patient.send(locked);
    }
}
