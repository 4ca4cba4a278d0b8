//! What wakes one scheduler: pokes, and times at which its queue is known to have work.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// One per scheduler. Pokes that come while the scheduler is awake are one poke.
#[derive(Default)]
pub(crate) struct Doorbell {
    rung: Notify,
    due: Mutex<Option<Instant>>,
    due_moved: Notify,
}

impl Doorbell {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue has work now.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// The queue has work from this instant on.
    pub(crate) fn due(&self, at: Instant) {
        let mut due = self.lock();
        if due.is_none_or(|due| at < due) {
            *due = Some(at);
            self.due_moved.notify_one();
        }
    }

    /// Resolves once the queue has work.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn rings(&self) {
        self.rung.notified().await;
    }

    /// The earliest time that was told since the last call, once there is one.
    ///
    /// # Cancel safety
    /// Nothing is lost: it is taken in the same poll that resolves.
    pub(crate) async fn told(&self) -> Instant {
        loop {
            if let Some(due) = self.lock().take() {
                return due;
            }
            self.due_moved.notified().await;
        }
    }
}
