//! Histories from a seed.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::call::{Act, Call, Change, Entry, Outcome, Pick, Sent, Timeout, Whom};
use super::vocabulary::{DEDUPLICATION_KEYS, KEYS, MACHINES, NAMES, QUEUES, SCOPES};

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
        match self.below(130) {
            0..10 => Call::Insert(self.several(6, Self::entry)),
            10..42 => Call::Claim {
                worker,
                queue: self.queue(),
                machines: self.machines(),
                limit: self.below(8),
            },
            42..86 => Call::Commit {
                worker,
                outcomes: self.outcomes(),
                close: self.once_in(2),
            },
            86..89 => Call::Resolve {
                worker,
                picks: self.several(4, Self::question),
            },
            89..91 => Call::Release {
                worker,
                claims: self.several(3, Self::position),
            },
            91..94 => Call::Register {
                ended: self.once_in(3),
            },
            94..97 => Call::Beat { worker },
            97..99 => Call::DeclareDead { worker },
            99..100 => Call::Retire { worker },
            100..103 => Call::Reap {
                limit: 1 + self.below(5),
            },
            103..106 => Call::Collect {
                done: !self.once_in(3),
                failed: !self.once_in(3),
                cancelled: !self.once_in(3),
                limit: 1 + self.below(5),
            },
            106..108 => Call::MakeDue {
                queue: self.queue(),
                machines: self.machines(),
            },
            108..109 => Call::Find {
                key: self.below(KEYS.len()),
            },
            109..117 => Call::Deliver(self.several(5, Self::sent)),
            117..125 => self.operate(),
            125..128 => Call::Expire {
                limit: 1 + self.below(3),
            },
            128 => Call::Settlements,
            _ => Call::UnfinishedChildren,
        }
    }

    fn operate(&mut self) -> Call {
        let act = match self.below(9) {
            0..3 => Act::Cancel {
                reason: self.below(3),
            },
            3 => Act::RetryNow,
            4 => Act::Wake,
            5 => Act::FireDeadline,
            _ => Act::Restart,
        };
        let whom = self.several(4, |random| match act {
            Act::Restart if !random.once_in(4) => Whom::Ended(random.below(6)),
            _ => random.whom(),
        });
        Call::Operate { whom, act }
    }

    /// Most of the time somebody who may be waiting, or at work.
    fn whom(&mut self) -> Whom {
        match self.below(10) {
            0..5 => Whom::Parked(self.below(6)),
            5..7 => Whom::Claimed(self.below(6)),
            7..9 => Whom::Instance(self.position()),
            _ => Whom::Key(self.below(KEYS.len())),
        }
    }

    /// Whether a store looks at the payload of a signal that it does not keep is its own affair: none is bad.
    fn sent(&mut self) -> Sent {
        Sent {
            whom: self.whom(),
            name: self.below(NAMES.len()),
            key: self.once_in(3).then(|| self.below(DEDUPLICATION_KEYS.len())),
        }
    }

    fn timeout(&mut self) -> Timeout {
        [Timeout::None, Timeout::Zero, Timeout::Hour][self.below(3)]
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
            0..16 => Pick::Open(position),
            16 => Pick::Own(position),
            17 => Pick::Any(position),
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
        match self.below(30) {
            0..5 => Change::Next {
                later: self.once_in(4),
            },
            5..8 => Change::Retry {
                state: self.once_in(2),
                later: self.once_in(4),
                failure: self.once_in(2),
            },
            8..10 => Change::GiveBack,
            10..13 => Change::Done,
            13..15 => Change::Failed,
            15..17 => Change::Cancelled,
            17..22 => Change::Await {
                names: (0..=self.below(2)).map(|_| self.below(NAMES.len())).collect(),
                timeout: self.timeout(),
            },
            22..27 => Change::ScheduleChildren {
                children: self.several(3, Self::child),
                needed: [None, None, Some(1), Some(2)][self.below(4)],
                timeout: self.timeout(),
            },
            27..29 => Change::Ahead,
            _ if self.once_in(2) => Change::Refused,
            _ => Change::Done,
        }
    }

    /// Mostly due at once where most of the work is, so that joins are met. Whether a store looks at the children of an
    /// outcome that is stale is its own affair: none is bad.
    fn child(&mut self) -> Entry {
        Entry {
            priority: -1,
            later: self.once_in(10),
            bad: false,
            ..self.entry()
        }
    }
}
