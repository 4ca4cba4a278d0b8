//! When a scheduler claims, and how much: pure decisions, no clock of its own.

use std::time::Duration;

use tokio::time::Instant;

/// What the scheduler does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Claim up to this many.
    Claim(usize),
    /// Wait for a poke or this instant: the queue has no work that is known.
    WaitUntil(Instant),
    /// Wait for room, at most until this instant if there is some already: the queue has work.
    WaitForRoom(Option<Instant>),
}

/// A claim that fills up is worth a tenth of the concurrency, or ...
const WORTH_A_CLAIM: usize = 10;
/// ... what is free after this long: slots that come free one by one do not cost a claim each.
const LONGEST_WAIT_FOR_ROOM: Duration = Duration::from_millis(20);

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
    /// Whether the last claim took all the room that there was.
    filled: bool,
    /// Since when there has been some room, too little to be worth a claim.
    room_since: Option<Instant>,
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
            filled: false,
            room_since: None,
        }
    }

    /// Decides.
    pub(crate) fn step(&mut self, room: usize, now: Instant) -> Step {
        if !self.more && now < self.next_poll {
            return Step::WaitUntil(self.next_poll);
        }
        if room == 0 {
            self.room_since = None;
            return Step::WaitForRoom(None);
        }
        let worth = (self.concurrency / WORTH_A_CLAIM).max(1);
        if self.filled && room < worth {
            let until = *self.room_since.get_or_insert(now) + LONGEST_WAIT_FOR_ROOM;
            if now < until {
                return Step::WaitForRoom(Some(until));
            }
        }
        self.room_since = None;
        Step::Claim(room)
    }

    /// Somebody said that the queue has work.
    pub(crate) const fn poked(&mut self) {
        self.more = true;
        self.idle = self.poll;
    }

    /// A claim was answered.
    pub(crate) fn claimed(&mut self, asked: usize, found: usize, next_due: Option<Duration>, now: Instant) {
        self.more = found >= asked;
        self.filled = self.more;
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
        assert_eq!(feed.step(10, now), Step::Claim(10));
        feed.claimed(10, 10, None, now);
        assert_eq!(feed.step(0, now), Step::WaitForRoom(None));
        assert_eq!(feed.step(3, now), Step::Claim(3));
        feed.claimed(3, 1, None, now);
        assert_eq!(feed.step(2, now), Step::WaitUntil(now + SECOND));
        feed.poked();
        assert_eq!(feed.step(2, now), Step::Claim(2));
    }

    #[test]
    fn a_backlog_is_claimed_by_the_batch_and_never_waits_long_for_one() {
        let now = Instant::now();
        let mut feed = Feed::new(100, SECOND, now);
        feed.claimed(100, 100, None, now);
        let until = now + LONGEST_WAIT_FOR_ROOM;
        assert_eq!(feed.step(9, now), Step::WaitForRoom(Some(until)));
        assert_eq!(feed.step(10, now), Step::Claim(10), "a tenth is worth a claim");
        assert_eq!(feed.step(1, now), Step::WaitForRoom(Some(until)));
        assert_eq!(feed.step(1, until), Step::Claim(1));
        feed.claimed(1, 0, None, now);
        feed.poked();
        assert_eq!(
            feed.step(1, now),
            Step::Claim(1),
            "new work on a queue without backlog is claimed at once"
        );
    }

    #[test]
    fn an_idle_queue_is_polled_less_often_and_a_due_time_comes_first() {
        let now = Instant::now();
        let mut feed = Feed::new(10, SECOND, now);
        for _ in 0..9 {
            feed.claimed(10, 0, None, now);
        }
        assert_eq!(feed.step(10, now), Step::WaitUntil(now + SECOND * LONGEST_IDLE));
        feed.claimed(10, 0, Some(SECOND / 4), now);
        assert_eq!(feed.step(10, now), Step::WaitUntil(now + SECOND / 4));
        feed.claimed(10, 1, None, now);
        assert_eq!(feed.step(10, now), Step::WaitUntil(now + SECOND));
    }
}
