//! What is to be told to other processes: one entry per queue, however many pokes (rule POKE-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::poke::Poke;
use crate::types::{InstanceId, QueueName};

/// The most queues, and the most instances, that wait to be told of. What is beyond is found by polls and heartbeats.
const LARGEST: usize = 1_000;

#[derive(Default)]
pub(crate) struct Outbox {
    inside: Mutex<Inside>,
    filled: Notify,
}

#[derive(Default)]
struct Inside {
    waiting: Waiting,
    /// The next time of each queue that the others know of. Who wakes then asks the store for the one after it, so
    /// a later one need not be told.
    told: BTreeMap<QueueName, Instant>,
    told_deadline: Option<Instant>,
    /// Whether something was taken that is not known to be sent.
    sending: bool,
}

/// What waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// When each queue has work.
    work: BTreeMap<QueueName, Instant>,
    anything: bool,
    deadline: Option<Instant>,
    cancelled: BTreeSet<InstanceId>,
}

fn earlier(one: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(one.map_or(other, |one| one.min(other)))
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.work.is_empty() && !self.anything && self.deadline.is_none() && self.cancelled.is_empty()
    }

    /// As pokes, with times from now.
    pub(crate) fn pokes(&self, now: Instant) -> Vec<Poke> {
        let work = self.work.iter().map(|(queue, at)| Poke::Work {
            queue: queue.clone(),
            due: at.saturating_duration_since(now),
        });
        let deadline = self.deadline.map(|at| Poke::Deadline {
            due: at.saturating_duration_since(now),
        });
        let cancelled = self.cancelled.iter().map(|id| Poke::Cancel { id: *id });
        let anything = self.anything.then_some(Poke::Anything);
        work.chain(anything).chain(deadline).chain(cancelled).collect()
    }

    fn add(&mut self, other: Self) {
        for (queue, at) in other.work {
            if self.work.len() < LARGEST || self.work.contains_key(&queue) {
                let known = self.work.entry(queue).or_insert(at);
                *known = at.min(*known);
            }
        }
        self.anything |= other.anything;
        if let Some(at) = other.deadline {
            self.deadline = earlier(self.deadline, at);
        }
        self.cancelled.extend(other.cancelled);
        while self.cancelled.len() > LARGEST {
            self.cancelled.pop_last();
        }
    }
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, waiting: Waiting) {
        self.lock().waiting.add(waiting);
        self.filled.notify_one();
    }

    /// A queue has work from an instant on, which is now or earlier if it has it already.
    pub(crate) fn work(&self, queue: &QueueName, at: Instant, now: Instant) {
        if at > now {
            let mut inside = self.lock();
            if inside
                .told
                .get(queue)
                .is_some_and(|told| *told > now && *told <= at)
            {
                return;
            }
            if inside.told.len() >= LARGEST {
                inside.told.retain(|_, told| *told > now);
            }
            inside.told.insert(queue.clone(), at);
        }
        self.add(Waiting {
            work: BTreeMap::from([(queue.clone(), at)]),
            ..Waiting::default()
        });
    }

    /// Any queue may have work.
    pub(crate) fn anything(&self) {
        self.add(Waiting {
            anything: true,
            ..Waiting::default()
        });
    }

    /// A deadline fires at this instant.
    pub(crate) fn deadline(&self, at: Instant, now: Instant) {
        let mut inside = self.lock();
        if inside.told_deadline.is_some_and(|told| told > now && told <= at) {
            return;
        }
        inside.told_deadline = Some(at);
        drop(inside);
        self.add(Waiting {
            deadline: Some(at),
            ..Waiting::default()
        });
    }

    /// The cancellation of an instance was asked for.
    pub(crate) fn cancelled(&self, id: InstanceId) {
        self.add(Waiting {
            cancelled: BTreeSet::from([id]),
            ..Waiting::default()
        });
    }

    /// Resolves once something waits.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn filled(&self) {
        while self.lock().waiting.is_empty() {
            self.filled.notified().await;
        }
    }

    /// All that waits.
    pub(crate) fn take(&self) -> Waiting {
        let mut inside = self.lock();
        inside.sending = true;
        std::mem::take(&mut inside.waiting)
    }

    /// What was taken is sent.
    pub(crate) fn sent(&self) {
        self.lock().sending = false;
    }

    /// What was taken could not be sent, and waits again.
    pub(crate) fn put_back(&self, waiting: Waiting) {
        let mut inside = self.lock();
        inside.sending = false;
        inside.waiting.add(waiting);
    }

    /// Whether everything is sent.
    pub(crate) fn is_empty(&self) -> bool {
        let inside = self.lock();
        inside.waiting.is_empty() && !inside.sending
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_pokes_are_one_and_later_times_need_not_be_told() {
        // contract: POKE-3
        let (outbox, now) = (Outbox::default(), Instant::now());
        let queue = QueueName::new("queue").expect("a name");
        for _ in 0..10_000 {
            outbox.work(&queue, now, now);
        }
        let due = Duration::ZERO;
        let work = |due| Poke::Work {
            queue: queue.clone(),
            due,
        };
        assert_eq!(outbox.take().pokes(now), [work(due)]);
        let second = Duration::from_secs(1);
        for seconds in [5, 3, 4, 9] {
            outbox.work(&queue, now + second * seconds, now);
            outbox.deadline(now + second * seconds, now);
        }
        let due = second * 3;
        assert_eq!(outbox.take().pokes(now), [work(due), Poke::Deadline { due }]);
        outbox.work(&queue, now + second * 4, now);
        assert_eq!(outbox.take().pokes(now), [], "they wake earlier, and ask");
        let later = now + due;
        outbox.work(&queue, now + second * 4, later);
        assert_eq!(outbox.take().pokes(later), [work(second)]);
    }

    #[test]
    fn what_waits_is_bounded_and_what_was_not_sent_waits_again() {
        let (outbox, now) = (Outbox::default(), Instant::now());
        for number in 0..5_000 {
            let queue = QueueName::new(format!("queue-{number}")).expect("a name");
            outbox.work(&queue, now, now);
            outbox.cancelled(InstanceId::new(number));
        }
        let waiting = outbox.take();
        assert_eq!(waiting.pokes(now).len(), 2 * LARGEST);
        assert!(!outbox.is_empty());
        outbox.put_back(waiting);
        assert_eq!(outbox.take().pokes(now).len(), 2 * LARGEST);
        outbox.sent();
        assert!(outbox.is_empty());
    }
}
