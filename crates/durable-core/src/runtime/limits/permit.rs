//! What a step holds of a gate while it runs, and until the fate of its outcome is known.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::limiter::Slot;
use crate::types::ConcurrencyKey;

/// All permits of one engine.
pub(crate) struct Permits {
    freed: mpsc::UnboundedSender<Slot>,
    /// Of each slot, what tells its step that it is lost.
    live: Mutex<HashMap<u64, CancellationToken>>,
    /// Slots that are held or on their way back, and keys on their way to who waits.
    outstanding: AtomicUsize,
}

impl Permits {
    /// And the slots that come back.
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Slot>) {
        let (freed, receiver) = mpsc::unbounded_channel();
        let permits = Self {
            freed,
            live: Mutex::default(),
            outstanding: AtomicUsize::new(0),
        };
        (Arc::new(permits), receiver)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, CancellationToken>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold(self: &Arc<Self>, slot: Slot) -> Permit {
        let lost = CancellationToken::new();
        self.releasing();
        self.lock().insert(slot.number, lost.clone());
        Permit {
            permits: Arc::clone(self),
            slot: Some(slot),
            lost,
        }
    }

    pub(crate) fn lost(&self, number: u64) {
        if let Some(token) = self.lock().get(&number) {
            token.cancel();
        }
    }

    pub(crate) fn releasing(&self) {
        self.outstanding.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn released(&self, count: usize) {
        self.outstanding.fetch_sub(count, Ordering::AcqRel);
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }
}

/// One slot; dropped, it goes back, exactly once.
pub(crate) struct Permit {
    permits: Arc<Permits>,
    slot: Option<Slot>,
    /// Trips when the slot is lost: the step must end, as another one may run in its place.
    pub(crate) lost: CancellationToken,
}

impl Permit {
    pub(crate) fn gate(&self) -> Option<&ConcurrencyKey> {
        self.slot.as_ref().map(|slot| &slot.gate)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.permits.lock().remove(&slot.number);
            // Whoever receives it lives as long as this sender.
            let _ = self.permits.freed.send(slot);
        }
    }
}
