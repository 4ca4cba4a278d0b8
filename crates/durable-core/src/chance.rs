//! Where every random number of this crate comes from, so that a simulation can replay a run exactly.
//!
//! Only jitter is random: the pause before a reconnection, the backoff of a job. Nothing relies on numbers that cannot be
//! guessed.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use rand::distr::uniform::SampleUniform;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

thread_local! {
    static SEEDED: RefCell<Option<SmallRng>> = const { RefCell::new(None) };
}

/// Draws the numbers of this thread from a seed until it is dropped; see [`seed`].
#[must_use = "the numbers are those of the seed for as long as this is held"]
pub struct Seeded {
    before: Option<SmallRng>,
}

/// From now on, what this thread draws comes from a seed: for simulations, which run an engine on one thread.
pub fn seed(seed: u64) -> Seeded {
    let before = SEEDED.replace(Some(SmallRng::seed_from_u64(seed)));
    Seeded { before }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        SEEDED.set(self.before.take());
    }
}

/// A number of a range.
pub(crate) fn draw<T: SampleUniform + PartialOrd>(range: RangeInclusive<T>) -> T {
    SEEDED.with_borrow_mut(|seeded| match seeded {
        Some(seeded) => seeded.random_range(range),
        None => rand::rng().random_range(range),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_until_it_is_dropped() {
        let draw_some = || -> Vec<u64> { (0..4).map(|_| draw(0..=u64::MAX)).collect() };
        let outer = seed(1);
        let first = draw_some();
        {
            let _inner = seed(1);
            assert_eq!(draw_some(), first);
        }
        assert_ne!(draw_some(), first, "the outer seed goes on");
        drop(outer);
        assert_ne!(draw_some(), draw_some());
    }
}
