//! Random plans for errands.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::simulation::World;

/// One thing that an errand does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Deed {
    /// Goes on through the queue, after a delay in milliseconds.
    Next(u64),
    /// Goes on ahead of the queue.
    Ahead,
    /// Works for so many milliseconds, and goes on.
    Work(u64),
    /// Fails so often before it goes on.
    Fail(u64, Failing),
    /// Waits for so many signals, for so many milliseconds at most.
    Wait(u64, Option<u64>),
    /// Sends out children, and waits for all of them or for the first so many, for so many milliseconds at most.
    SendOut {
        children: Vec<Plan>,
        first: Option<u32>,
        timeout: Option<u64>,
    },
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Failing {
    Error,
    Panic,
    Timeout,
    Retry,
}

/// How an errand ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    Done,
    Fail,
    Cancel,
}

/// What an errand does, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) deeds: Vec<Deed>,
    pub(super) end: End,
    /// A key that errands of one run share.
    pub(super) key: Option<u64>,
}

impl Plan {
    pub(super) fn draw(world: &World, depth: u64) -> Self {
        let deeds = (0..world.draw(0..=4)).map(|_| Deed::draw(world, depth)).collect();
        let end = match world.draw(0..=9) {
            0 => End::Fail,
            1 => End::Cancel,
            _ => End::Done,
        };
        let key = (depth > 0 && world.draw(0..=3) == 0).then(|| world.draw(0..=3));
        Self { deeds, end, key }
    }

    /// How many signals it needs to come to its end, if no wait times out.
    pub(super) fn signals(&self) -> u64 {
        self.signals_until(self.deeds.len())
    }

    /// How many its waits ask for, up to a deed and with it.
    pub(super) fn signals_until(&self, deed: usize) -> u64 {
        let needed = |deed: &Deed| match deed {
            Deed::Wait(signals, _) => *signals,
            _ => 0,
        };
        self.deeds.iter().take(deed + 1).map(needed).sum()
    }
}

impl Deed {
    fn draw(world: &World, depth: u64) -> Self {
        match world.draw(0..=9) {
            0 => Self::Next(0),
            1 => Self::Next(world.draw(1..=5_000)),
            2 | 3 => Self::Ahead,
            4 => Self::Work(world.draw(1..=12_000)),
            5 => Self::Fail(world.draw(1..=3), Failing::draw(world)),
            6 | 7 => Self::Wait(world.draw(1..=3), Self::timeout(world, depth)),
            _ if depth < 2 => {
                let children: Vec<_> = (0..world.draw(0..=3))
                    .map(|_| Plan::draw(world, depth + 1))
                    .collect();
                Self::SendOut {
                    first: (world.draw(0..=3) == 0).then_some(1),
                    timeout: (world.draw(0..=3) == 0).then(|| world.draw(1..=20_000)),
                    children,
                }
            }
            _ => Self::Next(0),
        }
    }

    /// Nobody sends signals to children, so their waits end.
    fn timeout(world: &World, depth: u64) -> Option<u64> {
        (depth > 0 || world.draw(0..=1) == 0).then(|| world.draw(1..=20_000))
    }
}

impl Failing {
    fn draw(world: &World) -> Self {
        match world.draw(0..=3) {
            0 => Self::Error,
            1 => Self::Panic,
            2 => Self::Timeout,
            _ => Self::Retry,
        }
    }
}

pub(super) const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}
