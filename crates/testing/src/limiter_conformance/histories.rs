//! Random calls, one after the other: the backend and the model in memory must give the same answers.

use std::sync::Arc;
use std::time::Duration;

use durable_core::limiter::{Admission, AdmitRequest, Limit, Limiter, Slot, SlotHolder};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::scene::{HOUR, Policy, letters, slots_of};
use crate::MemoryLimiter;

const HISTORIES: u64 = 12;
const CALLS: usize = 60;

/// One holder on both sides, and the slots that it was given by each, in the same order.
struct Pair {
    /// Its lease is over as soon as it begins.
    ended: bool,
    subject: Arc<dyn SlotHolder>,
    model: Arc<dyn SlotHolder>,
    slots: Vec<(Slot, Slot)>,
}

struct World {
    random: StdRng,
    subject: Arc<dyn Limiter>,
    model: Arc<dyn Limiter>,
    pairs: Vec<Pair>,
    /// The newest policies, and those before; each entry is a gate and a rate limit.
    policies: Vec<(Policy, Policy)>,
    /// Keys of other histories are other keys.
    prefix: String,
}

/// No time passes that counts: periods are an hour, and leases are an hour or over at once.
pub async fn random_calls_are_answered_as_by_the_model(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2, LIM-3, LIM-4, LIM-5, LIM-8, LIM-9, LIM-11
    for seed in 0..HISTORIES {
        let mut world = World {
            random: StdRng::seed_from_u64(seed),
            subject: Arc::clone(&limiter),
            model: MemoryLimiter::new().into(),
            pairs: Vec::new(),
            policies: Vec::new(),
            prefix: format!("{seed}"),
        };
        world.change_policy();
        for _ in 0..3 {
            world.join().await;
        }
        for call in 0..CALLS {
            world.call(&format!("seed {seed}, call {call}")).await;
        }
        for pair in world.pairs {
            pair.subject.leave().await.expect("left");
        }
        limiter.maintain(1000).await.expect("maintained");
    }
}

impl World {
    fn change_policy(&mut self) {
        let version = i64::try_from(self.policies.len()).expect("few") + 1;
        let budget = self.random.random_range(1..=9);
        let allowed = self.random.random_range(0..=3);
        let mut shards = || self.random.random_range(1..=budget.min(4));
        let (of_gate, of_rate) = (shards(), shards());
        let shards = |count: u32| u16::try_from(count).expect("few");
        self.policies.push((
            Policy::of(Limit::gate(budget))
                .version(version)
                .shards(shards(of_gate)),
            Policy::of(Limit::rate(allowed, HOUR * 1000).burst(budget))
                .version(version)
                .shards(shards(of_rate)),
        ));
    }

    async fn join(&mut self) {
        let ended = self.random.random_bool(0.3);
        let lease = if ended { Duration::ZERO } else { HOUR };
        let pair = Pair {
            ended,
            subject: self.subject.join("random", lease).await.expect("joined"),
            model: self.model.join("random", lease).await.expect("joined"),
            slots: Vec::new(),
        };
        self.pairs.push(pair);
    }

    /// Mostly the newest.
    fn policy(&mut self) -> (Policy, Policy) {
        let newest = self.policies.len() - 1;
        let at = if self.random.random_bool(0.8) {
            newest
        } else {
            self.random.random_range(0..=newest)
        };
        self.policies[at].clone()
    }

    fn key(&mut self) -> String {
        format!("{}-{}", self.prefix, self.random.random_range(0..3))
    }

    fn request(&mut self) -> AdmitRequest {
        let (gate, rate) = self.policy();
        let (gate_key, rate_key) = (self.key(), self.key());
        let weight = self.random.random_range(1..=4);
        match self.random.random_range(0..3) {
            0 => gate.of_key(&gate_key),
            1 => rate.weighing(&rate_key, weight),
            _ => gate.and(&gate_key, rate.rate_use(&rate_key, weight)),
        }
    }

    async fn call(&mut self, what: &str) {
        match self.random.random_range(0..20) {
            0 => self.change_policy(),
            1 => self.maintain(what).await,
            2 => {
                let at = self.random.random_range(0..self.pairs.len());
                self.renew(at, what).await;
            }
            3 => {
                self.join().await;
                let at = self.random.random_range(0..self.pairs.len());
                let gone = self.pairs.swap_remove(at);
                gone.subject.leave().await.expect("left");
                gone.model.leave().await.expect("left");
            }
            4..8 => self.credit().await,
            _ => self.admit(what).await,
        }
        self.compare(what).await;
    }

    async fn admit(&mut self, what: &str) {
        let count = self.random.random_range(1..=6);
        let requests: Vec<_> = (0..count).map(|_| self.request()).collect();
        let at = self.random.random_range(0..self.pairs.len());
        let pair = &mut self.pairs[at];
        let expected = pair.model.admit(requests.clone()).await;
        let answers = pair.subject.admit(requests.clone()).await;
        let (expected, answers) = (expected.expect("decided"), answers.expect("decided"));
        assert_eq!(letters(&answers), letters(&expected), "{what}: {requests:?}");
        for (answer, expected) in answers.iter().zip(&expected) {
            if let Admission::TooHeavy { .. } = expected {
                assert_eq!(answer, expected, "{what}");
            }
        }
        pair.slots
            .extend(slots_of(&answers).into_iter().zip(slots_of(&expected)));
        // When slots of an ended lease are free for others is the backend's to say, until it was repaired.
        if pair.ended {
            self.maintain(what).await;
        }
    }

    async fn credit(&mut self) {
        let at = self.random.random_range(0..self.pairs.len());
        let pair = &mut self.pairs[at];
        let count = self.random.random_range(0..=pair.slots.len());
        let (subject, model) = pair.slots.drain(..count).unzip();
        pair.subject.credit(subject).await.expect("given back");
        pair.model.credit(model).await.expect("given back");
    }

    async fn renew(&mut self, at: usize, what: &str) {
        let pair = &mut self.pairs[at];
        let expected = pair.model.renew().await.expect("renewed");
        let renewed = pair.subject.renew().await.expect("renewed");
        assert_eq!(renewed.lost.len(), expected.lost.len(), "{what}");
    }

    /// Repairs, and lets those whose lease has ended go on: in between, a backend may admit for them or not.
    async fn maintain(&mut self, what: &str) {
        self.subject.maintain(1000).await.expect("maintained");
        self.model.maintain(1000).await.expect("maintained");
        for at in 0..self.pairs.len() {
            if self.pairs[at].ended {
                self.renew(at, what).await;
            }
        }
    }

    /// All keys, by the newest policies.
    async fn compare(&mut self, what: &str) {
        let (gate, rate) = self.policies[self.policies.len() - 1].clone();
        let keys = (0..3).map(|key| format!("{}-{key}", self.prefix));
        let uses: Vec<_> = keys
            .flat_map(|key| [gate.limit_use(&key), rate.limit_use(&key)])
            .collect();
        let expected = self.model.usage(uses.clone()).await.expect("read");
        let usage = self.subject.usage(uses).await.expect("read");
        for (usage, mut expected) in usage.into_iter().zip(expected) {
            let mut holders = usage.holders;
            holders.sort();
            expected.holders.sort();
            let (capacity, available) = (usage.capacity, usage.available);
            assert_eq!(
                (capacity, available),
                (expected.capacity, expected.available),
                "{what}"
            );
            assert_eq!(holders, expected.holders, "{what}");
        }
    }
}
