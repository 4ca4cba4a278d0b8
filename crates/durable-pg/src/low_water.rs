//! Where claims start to scan (rule CLAIM-2).
//!
//! As long as some session holds a snapshot, the entries of claimed rows stay in the indexes, in front of all
//! that may be claimed, and each scan from the beginning walks over all of them. So when scans are measured
//! slow, claims start where the last one ended, and one from the beginning takes at most a twentieth of the
//! time. What it finds behind the mark, an urgent row or one that was given back, has waited for no longer
//! than twenty such scans. While scans are fast, as they are without such a session, every one starts at the
//! beginning.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A scan that takes longer than this is slow.
const SLOW: Duration = Duration::from_millis(5);
/// A slow scan from the beginning is followed by this many times as long without one.
const PAUSE: u32 = 20;

/// The place of a row in the order of `ready`; times are microseconds since 2000, as the server counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) priority: i16,
    pub(crate) eligible: i64,
    pub(crate) instance: i64,
}

/// Where a scan starts, for each lane; `None` is the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) ready: Vec<Option<Mark>>,
    pub(crate) scheduled: Option<i64>,
}

/// What a scan found.
pub(crate) struct Scanned {
    /// How long it took to find the first row.
    pub(crate) took: Duration,
    /// The last row that was taken of each lane.
    pub(crate) last: Vec<Option<Mark>>,
    /// The earliest row of `scheduled`.
    pub(crate) due: Option<i64>,
}

/// The marks of each set of lanes that is claimed from. Bounded by the queues of the program.
#[derive(Default)]
pub(crate) struct LowWater {
    lanes: Mutex<HashMap<Vec<i32>, Scans>>,
}

impl LowWater {
    /// Where to start: at the marks, or at the beginning.
    pub(crate) fn start(&self, lanes: &[i32], now: Instant) -> Option<Start> {
        self.lock().get(lanes).and_then(|scans| scans.start(now))
    }

    /// A scan has ended; a whole one started at the beginning.
    pub(crate) fn ended(&self, lanes: &[i32], whole: bool, scanned: Scanned, now: Instant) {
        self.lock()
            .entry(lanes.to_vec())
            .or_default()
            .ended(whole, scanned, now);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<i32>, Scans>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Scans {
    marks: Start,
    /// When the next scan has to start at the beginning; `None` while scans are fast.
    whole_again: Option<Instant>,
}

impl Scans {
    fn start(&self, now: Instant) -> Option<Start> {
        self.whole_again
            .is_some_and(|again| now < again)
            .then(|| self.marks.clone())
    }

    fn ended(&mut self, whole: bool, scanned: Scanned, now: Instant) {
        if whole {
            self.whole_again = (scanned.took > SLOW).then(|| now + scanned.took * PAUSE);
            self.marks = Start {
                ready: scanned.last,
                scheduled: scanned.due,
            };
            return;
        }
        // Of two claims at a time the later answer may be of the earlier rows.
        for (mark, last) in self.marks.ready.iter_mut().zip(scanned.last) {
            *mark = (*mark).max(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(instance: i64) -> Option<Mark> {
        Some(Mark {
            priority: 100,
            eligible: 7,
            instance,
        })
    }

    fn scanned(milliseconds: u64, last: Option<Mark>) -> Scanned {
        Scanned {
            took: Duration::from_millis(milliseconds),
            last: vec![last],
            due: Some(9),
        }
    }

    #[test]
    fn fast_scans_start_at_the_beginning() {
        // contract: CLAIM-1, CLAIM-2
        let now = Instant::now();
        let mut scans = Scans::default();
        assert_eq!(scans.start(now), None);
        scans.ended(true, scanned(5, mark(1)), now);
        assert_eq!(scans.start(now), None);
    }

    #[test]
    fn slow_scans_start_at_the_mark_but_for_a_twentieth_of_the_time() {
        // contract: CLAIM-1, CLAIM-2
        let now = Instant::now();
        let mut scans = Scans::default();
        scans.ended(true, scanned(40, mark(5)), now);
        let start = scans.start(now);
        assert_eq!(
            start.as_ref().map(|start| (start.ready[0], start.scheduled)),
            Some((mark(5), Some(9)))
        );
        scans.ended(false, scanned(0, mark(8)), now);
        scans.ended(false, scanned(0, mark(6)), now);
        scans.ended(false, scanned(0, None), now);
        assert_eq!(
            scans.start(now).map(|start| start.ready[0]),
            Some(mark(8)),
            "marks only rise"
        );
        let later = now + Duration::from_millis(40) * PAUSE;
        assert_eq!(scans.start(later), None, "rows behind the mark are found");
        scans.ended(true, scanned(1, None), later);
        assert_eq!(scans.start(later), None, "fast again");
    }
}
