//! The capacity of one queue: one slot per instance that is claimed and not yet committed.
//!
//! A slot counts against the concurrency while its step runs. After that it only counts against the bound on
//! outcomes that wait for their commit, so that the next claim overlaps the commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::observe;
use crate::types::QueueName;

pub(crate) struct Slots {
    queue: QueueName,
    concurrency: usize,
    running: AtomicUsize,
    committing: AtomicUsize,
    freed: Notify,
}

impl Slots {
    pub(crate) fn new(queue: QueueName, concurrency: usize) -> Arc<Self> {
        Arc::new(Self {
            queue,
            concurrency,
            running: AtomicUsize::new(0),
            committing: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    /// How many instances are claimed and not yet committed.
    pub(crate) fn held(&self) -> usize {
        self.running.load(Ordering::Acquire) + self.committing.load(Ordering::Acquire)
    }

    /// For how many more there is room. As many outcomes may wait for their commit as steps may run; when the
    /// store is slower than that, each further one takes the room of a step.
    pub(crate) fn room(&self) -> usize {
        let waiting = self
            .committing
            .load(Ordering::Acquire)
            .saturating_sub(self.concurrency);
        let running = self.running.load(Ordering::Acquire);
        self.concurrency.saturating_sub(running + waiting)
    }

    /// Resolves once there may be more room than at the last call.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
        // Steps that end together are seen together, and not the first of them alone.
        tokio::task::yield_now().await;
    }

    pub(crate) fn take(self: &Arc<Self>) -> Slot {
        self.running.fetch_add(1, Ordering::AcqRel);
        Slot {
            slots: Some(Arc::clone(self)),
            ran: false,
        }
    }

    fn free(&self, running: usize, committing: usize) {
        self.running.fetch_sub(running, Ordering::AcqRel);
        self.committing.fetch_sub(committing, Ordering::AcqRel);
        observe::in_flight(&self.queue, self.held());
        self.freed.notify_one();
    }
}

/// One unit of capacity, freed when it is dropped.
pub(crate) struct Slot {
    slots: Option<Arc<Slots>>,
    ran: bool,
}

impl Slot {
    /// The step has ended; its outcome waits for the commit.
    pub(crate) fn ran(&mut self) {
        if let (Some(slots), false) = (&self.slots, self.ran) {
            self.ran = true;
            slots.committing.fetch_add(1, Ordering::AcqRel);
            slots.running.fetch_sub(1, Ordering::AcqRel);
            slots.freed.notify_one();
        }
    }
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
            slots.free(usize::from(!self.ran), usize::from(self.ran));
        }
    }
}

/// Frees the slots of a whole commit at once: one wake for all.
pub(crate) fn free_together(slots: Vec<Slot>) {
    let mut counts: Vec<(Arc<Slots>, [usize; 2])> = Vec::new();
    for mut slot in slots {
        let Some(pool) = slot.slots.take() else { continue };
        let count = [usize::from(!slot.ran), usize::from(slot.ran)];
        match counts.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &pool)) {
            Some((_, sum)) => *sum = [sum[0] + count[0], sum[1] + count[1]],
            None => counts.push((pool, count)),
        }
    }
    for (pool, [running, committing]) in counts {
        pool.free(running, committing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_that_wait_take_room_only_beyond_the_concurrency() {
        let queue = QueueName::new("default").expect("valid");
        let slots = Slots::new(queue, 2);
        let mut held: Vec<Slot> = (0..2).map(|_| slots.take()).collect();
        assert_eq!((slots.room(), slots.held()), (0, 2));
        held.iter_mut().for_each(Slot::ran);
        assert_eq!(
            (slots.room(), slots.held()),
            (2, 2),
            "the next claim overlaps the commit"
        );
        held.extend((0..2).map(|_| slots.take()));
        held.iter_mut().for_each(Slot::ran);
        assert_eq!(
            (slots.room(), slots.held()),
            (0, 4),
            "a store that stands still is not fed"
        );
        free_together(held);
        assert_eq!((slots.room(), slots.held()), (2, 0));
    }
}
