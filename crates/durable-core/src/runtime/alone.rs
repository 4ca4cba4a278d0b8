//! Outcomes that are committed in a transaction of the step's own (rule OPS-8): alone, so that nothing of the engine
//! waits on what a step did.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt::resolve;
use super::finished::Finished;
use super::settler::Settler;
use crate::error::StoreError;
use crate::observe;
use crate::store::{CommitFate, OutcomeTransaction, Transition};

/// How long a step whose transaction was rolled back waits until it may run again: what stood in its way is likely to
/// stand there for a moment more.
const PAUSE: Duration = Duration::from_millis(50);

impl Settler {
    /// Commits an outcome in the transaction of its step.
    pub(super) async fn commit_in(
        self: Arc<Self>,
        transaction: Box<dyn OutcomeTransaction>,
        mut finished: Finished,
    ) {
        finished.leave();
        let fate = match transaction.commit(finished.worker.id, finished.commit()).await {
            Ok(committed) => {
                committed.woken.iter().for_each(|queue| self.local.poke(queue));
                self.limits.freed(committed.freed);
                committed.fates.first().copied()
            }
            Err(error) => {
                observe::store_error("commit_transaction", &error);
                match error {
                    StoreError::Transient { .. } => None,
                    StoreError::WorkerDead => Some(CommitFate::Stale),
                    StoreError::Unknown { .. } => {
                        let fates = resolve(self.store.as_ref(), std::slice::from_ref(&finished)).await;
                        self.local.poke_all();
                        self.limits.look_at(Instant::now());
                        // When the store cannot say: a give-back that comes too late is stale, and changes nothing.
                        fates.and_then(|fates| fates.first().copied().flatten())
                    }
                    // Running the step again would end the same.
                    StoreError::Refused { message } | StoreError::Fatal { message } => {
                        self.refuse(finished, &message);
                        return;
                    }
                }
            }
        };
        match fate {
            Some(CommitFate::Committed | CommitFate::Stale | CommitFate::CancelRequested) => {
                self.settle(vec![finished], vec![fate], None);
            }
            // It was rolled back, so what the step wrote is gone: the step must run again.
            Some(CommitFate::Locked) | None => {
                tokio::time::sleep(PAUSE).await;
                finished.becomes(Transition::GiveBack);
                self.offer(finished);
            }
        }
    }
}
