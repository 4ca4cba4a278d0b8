//! What happens to calls and pokes: drawn from the seed.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::distr::uniform::SampleUniform;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::memory::Fault;

/// How often something goes wrong, in thousandths. Each seed has a climate of its own, so that some runs see one kind of
/// fault alone, and others all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Climate {
    slow: u32,
    /// So slow that a lease may end meanwhile.
    stalled: u32,
    failed: u32,
    /// A call, or its answer.
    lost: u32,
    lost_poke: u32,
    doubled_poke: u32,
    /// How long it is quiet between two misfortunes of processes, at most.
    pub(super) calm: Duration,
}

impl Climate {
    fn draw(random: &mut SmallRng) -> Self {
        let mut of = |choices: &[u32]| choices.choose(random).copied().unwrap_or(0);
        Self {
            slow: of(&[0, 50, 400]),
            stalled: of(&[0, 0, 5, 30]),
            failed: of(&[0, 10, 100, 300]),
            lost: of(&[0, 10, 100]),
            lost_poke: of(&[0, 100, 1000]),
            doubled_poke: of(&[0, 200]),
            calm: Duration::from_millis(of(&[1_000, 5_000, 20_000, 1_000_000]).into()),
        }
    }
}

/// The source of all that is left to chance in one run.
pub(super) struct Fate {
    random: Mutex<SmallRng>,
    state: Mutex<State>,
    pub(super) climate: Climate,
}

struct State {
    storm: bool,
    /// The store answers nobody before this instant.
    away_until: Instant,
}

impl Fate {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let climate = Climate::draw(&mut random);
        Self {
            random: Mutex::new(random),
            state: Mutex::new(State {
                storm: true,
                away_until: Instant::now(),
            }),
            climate,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn draw<T: SampleUniform + PartialOrd>(&self, range: RangeInclusive<T>) -> T {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.random_range(range)
    }

    /// Whether something happens that does so often in thousandths.
    fn happens(&self, often: u32) -> bool {
        often > 0 && self.draw(0..=999) < often
    }

    pub(super) fn storms(&self) -> bool {
        self.state().storm
    }

    /// Nothing goes wrong any more.
    pub(super) fn calm_down(&self) {
        self.state().storm = false;
    }

    /// The store answers nobody for so long.
    pub(super) fn goes_away(&self, time: Duration) {
        self.state().away_until = Instant::now() + time;
    }

    fn is_away(&self) -> bool {
        let state = self.state();
        state.storm && Instant::now() < state.away_until
    }

    /// Time passes, between a call and its effect, or its effect and the answer.
    pub(super) async fn pass(&self) {
        if !self.storms() {
            return yield_now().await;
        }
        if self.happens(self.climate.stalled) {
            sleep(Duration::from_millis(self.draw(1_000..=12_000))).await;
        } else if self.happens(self.climate.slow) {
            sleep(Duration::from_millis(self.draw(1..=80))).await;
        } else {
            for _ in 0..self.draw(0..=3) {
                yield_now().await;
            }
        }
    }

    /// What goes wrong with a call.
    pub(super) fn fault(&self) -> Option<Fault> {
        if !self.storms() {
            return None;
        }
        if self.is_away() || self.happens(self.climate.failed) {
            return Some(Fault::Transient);
        }
        if !self.happens(self.climate.lost) {
            return None;
        }
        Some(match self.draw(0..=1) {
            0 => Fault::LostCall,
            _ => Fault::LostAnswer,
        })
    }

    /// How often a poke arrives.
    pub(super) fn copies(&self) -> usize {
        if !self.storms() {
            return 1;
        }
        if self.happens(self.climate.lost_poke) {
            return 0;
        }
        1 + usize::from(self.happens(self.climate.doubled_poke))
    }
}
