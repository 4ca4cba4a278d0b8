//! Histories from a seed.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::call::{Call, Change, Entry, Outcome, Pick};
use super::vocabulary::{KEYS, MACHINES, QUEUES, SCOPES};

/// How many workers a call may name, counted from the newest: most of the time they are alive.
const WORKERS: usize = 3;
/// After how many calls all instances are compared.
const COMPARED_EVERY: usize = 6;

/// The history of a seed: this many calls, and after every few of them a look at all instances.
#[must_use]
pub fn generate(seed: u64, calls: usize) -> Vec<Call> {
    let mut random = Random(StdRng::seed_from_u64(seed));
    let mut history = Vec::with_capacity(calls + calls / COMPARED_EVERY);
    for number in 1..=calls {
        history.push(random.call());
        if number % COMPARED_EVERY == 0 {
            history.push(Call::Snapshots);
        }
    }
    history
}

struct Random(StdRng);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    /// True once in `times`.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn position(&mut self) -> usize {
        self.below(1000)
    }

    fn several<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| one(self)).collect()
    }

    /// Each machine or not, in any order, never twice.
    fn machines(&mut self) -> Vec<usize> {
        let mut machines: Vec<usize> = (0..MACHINES.len()).filter(|_| !self.once_in(5)).collect();
        if self.once_in(2) {
            machines.reverse();
        }
        machines
    }

    /// Most of the work is in one queue, so that it meets.
    fn queue(&mut self) -> usize {
        if self.once_in(4) {
            self.below(QUEUES.len())
        } else {
            0
        }
    }

    fn call(&mut self) -> Call {
        let worker = self.below(WORKERS);
        match self.below(100) {
            0..14 => Call::Insert(self.several(6, Self::entry)),
            14..40 => Call::Claim {
                worker,
                queue: self.queue(),
                machines: self.machines(),
                limit: self.below(8),
            },
            40..70 => Call::Commit {
                worker,
                outcomes: self.outcomes(),
                close: self.once_in(2),
            },
            70..74 => Call::Resolve {
                worker,
                picks: self.several(4, Self::question),
            },
            74..78 => Call::Release {
                worker,
                claims: self.several(3, Self::position),
            },
            78..82 => Call::Register {
                ended: self.once_in(3),
            },
            82..84 => Call::Beat { worker },
            84..86 => Call::DeclareDead { worker },
            86..87 => Call::Retire { worker },
            87..90 => Call::Reap {
                limit: 1 + self.below(5),
            },
            90..94 => Call::Collect {
                done: !self.once_in(3),
                failed: !self.once_in(3),
                cancelled: !self.once_in(3),
                limit: 1 + self.below(5),
            },
            94..97 => Call::MakeDue {
                queue: self.queue(),
                machines: self.machines(),
            },
            _ => Call::Find {
                key: self.below(KEYS.len()),
            },
        }
    }

    fn entry(&mut self) -> Entry {
        let bad = self.once_in(80);
        Entry {
            queue: self.queue(),
            machine: self.below(MACHINES.len()),
            priority: if self.once_in(2) {
                0
            } else {
                [-1, 1][self.below(2)]
            },
            later: self.once_in(5),
            // Whether a store looks at the state of a duplicate, which it does not keep, is its own affair.
            key: (!bad && self.once_in(2)).then(|| (self.below(KEYS.len()), self.below(SCOPES))),
            bad,
        }
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        let first = self.position();
        (0..self.below(5))
            .map(|number| Outcome {
                // Neighbours, so that few outcomes of a batch are of the same instance.
                pick: self.pick(first + number),
                change: self.change(),
            })
            .collect()
    }

    fn pick(&mut self, position: usize) -> Pick {
        match self.below(20) {
            0..15 => Pick::Open(position),
            15 => Pick::Own(position),
            16..18 => Pick::Any(position),
            18 => Pick::Older(position),
            _ => Pick::Unclaimed(position),
        }
    }

    /// What a worker may ask about: seldom what is not its own.
    fn question(&mut self) -> Pick {
        match self.below(8) {
            0..6 => Pick::Own(self.below(6)),
            6 => Pick::Any(self.position()),
            _ => Pick::Unclaimed(self.position()),
        }
    }

    fn change(&mut self) -> Change {
        match self.below(20) {
            0..6 => Change::Next {
                later: self.once_in(4),
            },
            6..10 => Change::Retry {
                state: self.once_in(2),
                later: self.once_in(4),
                failure: self.once_in(2),
            },
            10..13 => Change::GiveBack,
            13..16 => Change::Done,
            16..18 => Change::Failed,
            18 => Change::Cancelled,
            _ if self.once_in(2) => Change::Refused,
            _ => Change::Done,
        }
    }
}
