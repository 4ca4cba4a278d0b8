//! Group commit of inserts: small inserts of many callers that come while others are under way are the next
//! batch. A lone one goes out at once; there is no timer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use durable_core::store::NewInstance;
use durable_core::{Inserted, StoreError};
use tokio::sync::oneshot;

use crate::connect::Shared;
use crate::error::store_error;
use crate::insert::insert_batch;

/// How many batches may be under way at once: one commits while the next one executes.
const LARGEST_UNDER_WAY: usize = 2;
/// Beyond this an insert is a batch of its own.
const SMALL: usize = 50;
/// The most entries of one batch, about.
const LARGEST_BATCH: usize = 500;

/// The small inserts of this process that wait for their batch.
#[derive(Default)]
pub(crate) struct InsertGroup {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    callers: Vec<Caller>,
    under_way: usize,
}

struct Caller {
    entries: Vec<NewInstance>,
    answer: oneshot::Sender<Result<Vec<Inserted>, StoreError>>,
}

impl InsertGroup {
    /// Whether an insert may share its batch with others. One with a correlation key may not: it can wait for
    /// the transaction of somebody who holds the key, and the others would wait with it.
    pub(crate) fn takes(entries: &[NewInstance]) -> bool {
        entries.len() <= SMALL && entries.iter().all(|entry| entry.correlation.is_none())
    }

    /// Inserts together with whoever else inserts meanwhile.
    pub(crate) async fn insert(
        shared: &Arc<Shared>,
        entries: Vec<NewInstance>,
    ) -> Result<Vec<Inserted>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let start = {
            let mut waiting = shared.inserts.lock();
            waiting.callers.push(Caller { entries, answer });
            let start = waiting.under_way < LARGEST_UNDER_WAY;
            waiting.under_way += usize::from(start);
            start
        };
        if start {
            let runner = Runner {
                shared: Arc::clone(shared),
                ended: false,
            };
            tokio::spawn(runner.run());
        }
        answered.await.unwrap_or_else(|_ended| {
            let message = "the runtime that inserted for this caller and others has ended".to_owned();
            Err(StoreError::Unknown { message })
        })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Inserts what waits, batch by batch, until nothing does.
struct Runner {
    shared: Arc<Shared>,
    ended: bool,
}

impl Runner {
    async fn run(mut self) {
        while let Some(callers) = self.next() {
            insert_together(&self.shared, callers).await;
        }
    }

    /// The next batch. When there is none, the runner has ended, under the lock that saw nothing waiting.
    fn next(&mut self) -> Option<Vec<Caller>> {
        let mut waiting = self.shared.inserts.lock();
        let mut entries = 0;
        let count = waiting
            .callers
            .iter()
            .take_while(|caller| {
                entries += caller.entries.len();
                entries <= LARGEST_BATCH
            })
            .count();
        if count == 0 {
            waiting.under_way -= 1;
            self.ended = true;
            return None;
        }
        Some(waiting.callers.drain(..count).collect())
    }
}

impl Drop for Runner {
    /// The runtime ended midway. Whoever still waits is told; the next caller starts anew.
    fn drop(&mut self) {
        if !self.ended {
            let mut waiting = self.shared.inserts.lock();
            waiting.under_way -= 1;
            waiting.callers.clear();
        }
    }
}

async fn insert_together(shared: &Shared, callers: Vec<Caller>) {
    let entries: Vec<NewInstance> = callers
        .iter()
        .flat_map(|caller| caller.entries.iter().cloned())
        .collect();
    match insert_batch(shared, &entries)
        .await
        .map_err(|error| store_error(&error))
    {
        Ok(inserted) => {
            let mut inserted = inserted.into_iter();
            for caller in callers {
                let answer = inserted.by_ref().take(caller.entries.len()).collect();
                let _ = caller.answer.send(Ok(answer));
            }
        }
        // One caller is to blame; each is tried alone, so that the others do not fail with it.
        Err(StoreError::Refused { .. }) if callers.len() > 1 => {
            for caller in callers {
                let answer = insert_batch(shared, &caller.entries).await;
                let _ = caller.answer.send(answer.map_err(|error| store_error(&error)));
            }
        }
        Err(error) => {
            for caller in callers {
                let _ = caller.answer.send(Err(error.clone()));
            }
        }
    }
}
