//! One incarnation of this process in the store's eyes, and the claims that it holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::types::{ClaimNumber, WorkerId};

/// One incarnation: a worker row, and the token that trips when its lease is lost or the engine stops.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) stopping: CancellationToken,
    pub(crate) claims: Arc<ClaimBook>,
}

impl Worker {
    /// A new incarnation.
    pub(crate) fn new(id: WorkerId, stopping: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            id,
            stopping,
            claims: Arc::default(),
        })
    }

    /// The same incarnation after its lease seemed lost and was not: a fresh token, the same claims.
    pub(crate) fn resumed(&self, stopping: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            id: self.id,
            stopping,
            claims: Arc::clone(&self.claims),
        })
    }
}

/// The incarnation that an engine is now. Those who wait for the next one are woken in the order in which they came, which
/// a watch channel does not promise: a simulation replays it.
pub(crate) struct CurrentWorker {
    worker: Mutex<Arc<Worker>>,
    replaced: Notify,
}

impl CurrentWorker {
    /// Begins with this one.
    pub(crate) fn new(worker: Arc<Worker>) -> Arc<Self> {
        Arc::new(Self {
            worker: Mutex::new(worker),
            replaced: Notify::new(),
        })
    }

    /// The one that it is now.
    pub(crate) fn get(&self) -> Arc<Worker> {
        Arc::clone(&lock(&self.worker))
    }

    /// Goes on as another one.
    pub(crate) fn replace(&self, worker: Arc<Worker>) {
        *lock(&self.worker) = worker;
        self.replaced.notify_waiters();
    }

    /// Resolves once it is another one than this.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn other_than(&self, worker: &Arc<Worker>) {
        loop {
            // Made before the look, so that one that comes between the two is seen.
            let replaced = self.replaced.notified();
            if !Arc::ptr_eq(&self.get(), worker) {
                return;
            }
            replaced.await;
        }
    }
}

/// Which claims the worker knows of, and how much of each is left.
#[derive(Default)]
pub(crate) struct ClaimBook {
    last: AtomicI64,
    open: Mutex<HashMap<ClaimNumber, Left>>,
    closed: Mutex<Vec<ClaimNumber>>,
}

enum Left {
    /// Asked for, not yet answered.
    Asked,
    /// This many instances are not yet committed.
    Instances(usize),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClaimBook {
    /// A number for a claim that is about to be asked for.
    pub(crate) fn ask(&self) -> ClaimNumber {
        let number = ClaimNumber::new(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        lock(&self.open).insert(number, Left::Asked);
        number
    }

    /// The claim was answered with this many instances.
    pub(crate) fn answered(&self, number: ClaimNumber, instances: usize) {
        let mut open = lock(&self.open);
        if instances == 0 {
            open.remove(&number);
        } else {
            open.insert(number, Left::Instances(instances));
        }
    }

    /// The claim failed. If it was committed all the same, the next heartbeat lists it (rule CLAIM-6).
    pub(crate) fn unanswered(&self, number: ClaimNumber) {
        lock(&self.open).remove(&number);
    }

    /// One instance of the claim is settled: its fate is known.
    pub(crate) fn settle(&self, number: ClaimNumber) {
        let mut open = lock(&self.open);
        if let Some(Left::Instances(left)) = open.get_mut(&number) {
            *left -= 1;
            if *left == 0 {
                open.remove(&number);
                lock(&self.closed).push(number);
            }
        }
    }

    /// The claims of which nothing is left, to be forgotten by the store.
    pub(crate) fn take_closed(&self) -> Vec<ClaimNumber> {
        std::mem::take(&mut *lock(&self.closed))
    }

    /// Puts closed claims back, because the call that should have named them failed.
    pub(crate) fn put_back(&self, closed: Vec<ClaimNumber>) {
        lock(&self.closed).extend(closed);
    }

    /// Those of the store's claims that this worker does not know: their answer was lost, or they are closed.
    pub(crate) fn unknown(&self, listed: Vec<ClaimNumber>) -> Vec<ClaimNumber> {
        let open = lock(&self.open);
        listed
            .into_iter()
            .filter(|number| !open.contains_key(number))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_unknown_only_when_nobody_waits_for_it() {
        // contract: CLAIM-6
        let book = ClaimBook::default();
        let (asked, lost, held) = (book.ask(), book.ask(), book.ask());
        book.unanswered(lost);
        book.answered(held, 2);
        assert_eq!(book.unknown(vec![asked, lost, held]), vec![lost]);
        book.settle(held);
        assert_eq!(book.take_closed(), vec![]);
        book.settle(held);
        assert_eq!(book.take_closed(), vec![held]);
    }
}
