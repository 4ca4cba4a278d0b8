//! Where claims start to scan (rule CLAIM-2).
//!
//! As long as some session holds a snapshot, the entries of claimed rows stay in the indexes, in front of all
//! that may be claimed, and each scan from the beginning walks over all of them. So when scans are measured
//! slow, claims start where the last one ended, and one from the beginning takes at most a twentieth of the
//! time. What it finds behind the mark, an urgent row or one that was given back, has waited for no longer
//! than twenty such scans: a claim that left it says that it wants to look again by then, and one that finds
//! nothing looks from the beginning before it says so. While scans are fast, as they are without such a
//! session, or few rows were claimed, every one starts at the beginning.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A scan that takes longer than this is slow, ...
const SLOW: Duration = Duration::from_millis(5);
/// ... if this many rows were claimed since the last fast one: a busy machine alone is no reason.
const MANY: usize = 5_000;
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
    /// How many rows were taken.
    pub(crate) rows: usize,
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
    /// Where to start: at the marks, and how long until the next scan from the beginning; or there.
    pub(crate) fn start(&self, lanes: &[i32], now: Instant) -> Option<(Start, Duration)> {
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
    /// How many rows were taken since the last fast scan from the beginning.
    taken: usize,
}

impl Scans {
    fn start(&self, now: Instant) -> Option<(Start, Duration)> {
        let left = self.whole_again?.checked_duration_since(now)?;
        (!left.is_zero()).then(|| (self.marks.clone(), left))
    }

    fn ended(&mut self, whole: bool, scanned: Scanned, now: Instant) {
        self.taken += scanned.rows;
        if whole {
            if scanned.took <= SLOW {
                self.taken = 0;
            }
            self.whole_again = (self.taken >= MANY).then(|| now + scanned.took * PAUSE);
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

    fn scanned(milliseconds: u64, rows: usize, last: Option<Mark>) -> Scanned {
        Scanned {
            took: Duration::from_millis(milliseconds),
            rows,
            last: vec![last],
            due: Some(9),
        }
    }

    #[test]
    fn fast_scans_and_scans_of_few_rows_start_at_the_beginning() {
        // contract: CLAIM-1, CLAIM-2
        let now = Instant::now();
        let mut scans = Scans::default();
        assert_eq!(scans.start(now), None);
        scans.ended(true, scanned(5, MANY, mark(1)), now);
        assert_eq!(scans.start(now), None, "fast");
        scans.ended(true, scanned(100, MANY - 1, mark(2)), now);
        assert_eq!(scans.start(now), None, "a busy machine");
    }

    #[test]
    fn slow_scans_start_at_the_mark_but_for_a_twentieth_of_the_time() {
        // contract: CLAIM-1, CLAIM-2
        let now = Instant::now();
        let mut scans = Scans::default();
        let pause = Duration::from_millis(40) * PAUSE;
        scans.ended(true, scanned(40, MANY, mark(5)), now);
        let start = Start {
            ready: vec![mark(5)],
            scheduled: Some(9),
        };
        assert_eq!(scans.start(now), Some((start, pause)));
        scans.ended(false, scanned(0, 1, mark(8)), now);
        scans.ended(false, scanned(0, 1, mark(6)), now);
        scans.ended(false, scanned(0, 0, None), now);
        let marked = scans.start(now).map(|(start, _)| start.ready);
        assert_eq!(marked, Some(vec![mark(8)]), "marks only rise");
        assert_eq!(scans.start(now + pause), None, "rows behind the mark are found");
        scans.ended(true, scanned(1, 0, None), now + pause);
        assert_eq!(scans.start(now + pause), None, "fast again");
        scans.ended(true, scanned(40, 1, mark(9)), now + pause);
        assert_eq!(scans.start(now + pause), None, "few since then");
    }
}
