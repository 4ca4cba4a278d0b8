//! When a scheduler claims, and how much: pure decisions, no clock of its own.

use std::time::Duration;

use tokio::time::Instant;

/// What the scheduler does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Claim up to this many.
    Claim(usize),
    /// Wait for a freed slot, a poke, or this instant.
    WaitUntil(Instant),
    /// Wait for a freed slot: the queue has work and there is no room.
    WaitForSlot,
}

/// The longest sleep between polls is the poll interval times this, after polls that found nothing.
const LONGEST_IDLE: u32 = 5;

/// The state of one queue's scheduler.
#[derive(Debug)]
pub(crate) struct Feed {
    concurrency: usize,
    poll: Duration,
    idle: Duration,
    next_poll: Instant,
    more: bool,
}

impl Feed {
    /// Starts with a claim at once.
    pub(crate) fn new(concurrency: usize, poll: Duration, now: Instant) -> Self {
        Self {
            concurrency,
            poll,
            idle: poll,
            next_poll: now,
            more: true,
        }
    }

    /// Decides.
    pub(crate) fn step(&self, taken: usize, now: Instant) -> Step {
        let free = self.concurrency.saturating_sub(taken);
        if !self.more && now < self.next_poll {
            return Step::WaitUntil(self.next_poll);
        }
        if free == 0 {
            Step::WaitForSlot
        } else {
            Step::Claim(free)
        }
    }

    /// Somebody said that the queue has work.
    pub(crate) const fn poked(&mut self) {
        self.more = true;
        self.idle = self.poll;
    }

    /// A claim was answered.
    pub(crate) fn claimed(&mut self, asked: usize, found: usize, next_due: Option<Duration>, now: Instant) {
        self.more = found >= asked;
        self.idle = if found > 0 {
            self.poll
        } else {
            (self.idle * 2).min(self.poll * LONGEST_IDLE)
        };
        self.next_poll = now + next_due.map_or(self.idle, |due| due.min(self.idle));
    }

    /// A claim failed.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.more = false;
        self.next_poll = now + self.poll;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_full_answer_means_more_and_no_room_means_wait() {
        let now = Instant::now();
        let mut feed = Feed::new(10, SECOND, now);
        assert_eq!(feed.step(0, now), Step::Claim(10));
        feed.claimed(10, 10, None, now);
        assert_eq!(feed.step(10, now), Step::WaitForSlot);
        assert_eq!(feed.step(7, now), Step::Claim(3));
        feed.claimed(3, 1, None, now);
        assert_eq!(feed.step(8, now), Step::WaitUntil(now + SECOND));
        feed.poked();
        assert_eq!(feed.step(8, now), Step::Claim(2));
    }

    #[test]
    fn an_idle_queue_is_polled_less_often_and_a_due_time_comes_first() {
        let now = Instant::now();
        let mut feed = Feed::new(10, SECOND, now);
        for _ in 0..9 {
            feed.claimed(10, 0, None, now);
        }
        assert_eq!(feed.step(0, now), Step::WaitUntil(now + SECOND * LONGEST_IDLE));
        feed.claimed(10, 0, Some(SECOND / 4), now);
        assert_eq!(feed.step(0, now), Step::WaitUntil(now + SECOND / 4));
        feed.claimed(10, 1, None, now);
        assert_eq!(feed.step(0, now), Step::WaitUntil(now + SECOND));
    }
}
