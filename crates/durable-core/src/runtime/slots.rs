//! The capacity of one queue: one slot per instance that is claimed and not yet committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::observe;
use crate::types::QueueName;

pub(crate) struct Slots {
    queue: QueueName,
    taken: AtomicUsize,
    freed: Notify,
}

impl Slots {
    pub(crate) fn new(queue: QueueName) -> Arc<Self> {
        Arc::new(Self {
            queue,
            taken: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// Resolves once a slot was freed since the last call.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    pub(crate) fn take(self: &Arc<Self>) -> Slot {
        self.taken.fetch_add(1, Ordering::AcqRel);
        Slot {
            slots: Some(Arc::clone(self)),
        }
    }

    fn free(&self, count: usize) {
        let before = self.taken.fetch_sub(count, Ordering::AcqRel);
        observe::in_flight(&self.queue, before.saturating_sub(count));
        self.freed.notify_one();
    }
}

/// One unit of capacity, freed when it is dropped.
pub(crate) struct Slot {
    slots: Option<Arc<Slots>>,
}

impl Slot {
    /// The queue whose capacity this is.
    pub(crate) fn queue(&self) -> Option<&QueueName> {
        self.slots.as_deref().map(|slots| &slots.queue)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.free(1);
        }
    }
}

/// Frees the slots of a whole commit at once, so that the next claim finds room for a batch and not for one.
pub(crate) fn free_together(slots: Vec<Slot>) {
    let mut counts: Vec<(Arc<Slots>, usize)> = Vec::new();
    for mut slot in slots {
        let Some(pool) = slot.slots.take() else { continue };
        match counts.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &pool)) {
            Some((_, count)) => *count += 1,
            None => counts.push((pool, 1)),
        }
    }
    for (pool, count) in counts {
        pool.free(count);
    }
}
