//! When a scheduler claims, and how much: pure decisions, no clock of its own.

use std::time::Duration;

use tokio::time::Instant;

use super::pace::Pace;

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

/// Pokes cause so many claims at once, ...
const POKE_BURST: u32 = 32;
/// ... and one per so much time in the long run, however many there are (rule POKE-3).
const POKE_GAP: Duration = Duration::from_millis(2);

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
    /// Whether somebody said that the queue has work, since the last claim was asked for.
    poked: bool,
    /// Whether a poke caused the last claim that was asked for.
    by_poke: bool,
    pace: Pace,
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
            poked: false,
            by_poke: false,
            pace: Pace::new(POKE_BURST, POKE_GAP, now),
        }
    }

    /// Decides.
    pub(crate) fn step(&mut self, room: usize, now: Instant) -> Step {
        let by_poke = self.poked && !self.more && now < self.next_poll;
        let start = match (self.more, self.poked) {
            (true, _) => now,
            (false, true) => self.pace.next(now).min(self.next_poll),
            (false, false) => self.next_poll,
        };
        if now < start {
            return Step::WaitUntil(start);
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
        self.poked = false;
        self.by_poke = by_poke;
        if by_poke {
            self.pace.done(now);
        }
        Step::Claim(room)
    }

    /// Somebody said that the queue has work.
    pub(crate) const fn poked(&mut self) {
        self.poked = true;
    }

    /// The queue has work from this instant on.
    pub(crate) fn due(&mut self, at: Instant) {
        self.next_poll = self.next_poll.min(at);
    }

    /// A claim was answered.
    pub(crate) fn claimed(&mut self, asked: usize, found: usize, next_due: Option<Duration>, now: Instant) {
        self.more = found >= asked;
        self.filled = self.more;
        // A claim that a poke caused says nothing about how often to look without one.
        self.idle = if found > 0 || std::mem::take(&mut self.by_poke) {
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
    fn pokes_cause_a_bounded_number_of_claims() {
        // contract: POKE-3
        let start = Instant::now();
        let mut feed = Feed::new(10, SECOND * 60, start);
        feed.claimed(10, 0, None, start);
        let mut claims = 0;
        let step = SECOND / 10_000;
        for tick in 0..10_000 {
            feed.poked();
            let now = start + step * tick;
            if feed.step(10, now) == Step::Claim(10) {
                claims += 1;
                feed.claimed(10, 1, None, now);
            }
        }
        assert!(
            (450..=550).contains(&claims),
            "{claims} claims for 10,000 pokes in a second"
        );
    }

    #[test]
    fn a_miss_after_a_poke_does_not_stretch_the_sleep() {
        // contract: POKE-1
        let now = Instant::now();
        let mut feed = Feed::new(10, SECOND, now);
        feed.claimed(10, 0, None, now);
        for _ in 0..5 {
            feed.poked();
            assert_eq!(feed.step(10, now), Step::Claim(10));
            feed.claimed(10, 0, None, now);
            assert_eq!(feed.step(10, now), Step::WaitUntil(now + SECOND));
        }
    }

    #[test]
    fn a_time_that_was_told_comes_before_the_poll() {
        // contract: POKE-4
        let now = Instant::now();
        let mut feed = Feed::new(10, SECOND, now);
        feed.claimed(10, 1, None, now);
        feed.due(now + SECOND / 3);
        feed.due(now + SECOND / 2);
        assert_eq!(feed.step(10, now), Step::WaitUntil(now + SECOND / 3));
        assert_eq!(feed.step(10, now + SECOND / 3), Step::Claim(10));
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
