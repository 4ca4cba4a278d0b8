//! A bound on how often something is done: so many at once, after that one per gap. Pure, no clock of its own.

use std::time::Duration;

use tokio::time::Instant;

/// Counts by one instant: when what was done so far is paid for at one per gap.
#[derive(Debug)]
pub(crate) struct Pace {
    burst: Duration,
    gap: Duration,
    paid_until: Instant,
}

impl Pace {
    /// At most `burst` at once, and one per `gap` in the long run.
    pub(crate) fn new(burst: u32, gap: Duration, now: Instant) -> Self {
        Self {
            // The one that is about to be done is not paid for yet.
            burst: gap * burst.saturating_sub(1),
            gap,
            paid_until: now,
        }
    }

    /// When the next may be done; not after `now` if at once.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let debt = self.paid_until.saturating_duration_since(now);
        now + debt.saturating_sub(self.burst)
    }

    /// It is done.
    pub(crate) fn done(&mut self, now: Instant) {
        self.paid_until = self.paid_until.max(now) + self.gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_at_once_and_then_one_per_gap() {
        let (gap, now) = (Duration::from_millis(5), Instant::now());
        let mut pace = Pace::new(3, gap, now);
        for _ in 0..3 {
            assert_eq!(pace.next(now), now);
            pace.done(now);
        }
        assert_eq!(pace.next(now), now + gap);
        let later = now + gap * 100;
        assert_eq!(pace.next(later), later);
        for _ in 0..3 {
            pace.done(later);
        }
        assert_eq!(
            pace.next(later),
            later + gap,
            "rest does not save up more than a burst"
        );
    }
}
