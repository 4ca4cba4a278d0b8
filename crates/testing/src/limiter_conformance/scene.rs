//! What the cases share: short calls that panic where the limiter fails, and plain limits.

use std::sync::Arc;
use std::time::Duration;

use durable_core::limiter::{
    Admission, AdmitRequest, GateUse, Limit, LimitPolicy, LimitUse, Limiter, Maintained, RateUse, Slot,
    SlotHolder,
};
use durable_core::{ConcurrencyKey, LimitKind, LimitName, RateKey};

pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// A limit for each of the keys that share its name.
#[derive(Clone)]
pub(super) struct Policy(pub(super) Arc<LimitPolicy>);

pub(super) fn gate(capacity: u32) -> Policy {
    Policy::of(Limit::gate(capacity))
}

/// Refills `allowed` in an hour, so that none comes back while a test runs.
pub(super) fn slow(allowed: u32) -> Policy {
    Policy::of(Limit::rate(allowed, HOUR))
}

/// Never refills.
pub(super) fn fixed(burst: u32) -> Policy {
    Policy::of(Limit::rate(0, HOUR).burst(burst))
}

impl Policy {
    pub(super) fn of(limit: Limit) -> Self {
        Self(Arc::new(LimitPolicy {
            name: LimitName::new("limit").expect("valid"),
            limit,
            shards: 1,
            version: 1,
        }))
    }

    pub(super) fn shards(&self, shards: u16) -> Self {
        Self(Arc::new(LimitPolicy {
            shards,
            ..LimitPolicy::clone(&self.0)
        }))
    }

    pub(super) fn version(&self, version: i64) -> Self {
        Self(Arc::new(LimitPolicy {
            version,
            ..LimitPolicy::clone(&self.0)
        }))
    }

    pub(super) fn gate_use(&self, key: &str) -> GateUse {
        GateUse {
            key: ConcurrencyKey::new(format!("limit:{key}")).expect("valid"),
            policy: Arc::clone(&self.0),
        }
    }

    pub(super) fn rate_use(&self, key: &str, weight: u32) -> RateUse {
        RateUse {
            key: RateKey::new(format!("limit:{key}")).expect("valid"),
            policy: Arc::clone(&self.0),
            weight,
        }
    }

    /// A request of a gate or of one token, as the policy is.
    pub(super) fn of_key(&self, key: &str) -> AdmitRequest {
        match self.0.limit.kind() {
            LimitKind::Gate => AdmitRequest {
                gate: Some(self.gate_use(key)),
                rate: None,
            },
            LimitKind::Rate => self.weighing(key, 1),
        }
    }

    pub(super) fn weighing(&self, key: &str, weight: u32) -> AdmitRequest {
        AdmitRequest {
            gate: None,
            rate: Some(self.rate_use(key, weight)),
        }
    }

    /// A request of this gate and of a rate limit.
    pub(super) fn and(&self, key: &str, rate: RateUse) -> AdmitRequest {
        AdmitRequest {
            gate: Some(self.gate_use(key)),
            rate: Some(rate),
        }
    }

    pub(super) fn limit_use(&self, key: &str) -> LimitUse {
        match self.0.limit.kind() {
            LimitKind::Gate => LimitUse::Gate(self.gate_use(key)),
            LimitKind::Rate => LimitUse::Rate(self.rate_use(key, 1)),
        }
    }
}

pub(super) struct Scene {
    pub(super) limiter: Arc<dyn Limiter>,
    /// A holder with a lease of an hour.
    pub(super) holder: Arc<dyn SlotHolder>,
}

impl Scene {
    pub(super) async fn new(limiter: Arc<dyn Limiter>) -> Self {
        let holder = limiter.join("first", HOUR).await.expect("joined");
        Self { limiter, holder }
    }

    pub(super) async fn join(&self, label: &str, lease: Duration) -> Arc<dyn SlotHolder> {
        self.limiter.join(label, lease).await.expect("joined")
    }

    pub(super) async fn admit(&self, requests: Vec<AdmitRequest>) -> Vec<Admission> {
        admit(&*self.holder, requests).await
    }

    /// Asks for one key so many times, in one call; answers how many were admitted.
    pub(super) async fn take(&self, policy: &Policy, key: &str, count: usize) -> usize {
        let answers = self.admit(vec![policy.of_key(key); count]).await;
        admitted(&answers)
    }

    pub(super) async fn slots(&self, policy: &Policy, key: &str, count: usize) -> Vec<Slot> {
        slots_of(&self.admit(vec![policy.of_key(key); count]).await)
    }

    pub(super) async fn credit(&self, slots: Vec<Slot>) {
        self.holder.credit(slots).await.expect("given back");
    }

    pub(super) async fn room(&self, policy: &Policy, key: &str) -> u32 {
        let room = self.limiter.room(vec![policy.limit_use(key)]).await;
        room.expect("read")[0]
    }

    pub(super) async fn usage(&self, policy: &Policy, key: &str) -> (u32, u32, Vec<(String, u32)>) {
        let usage = self.limiter.usage(vec![policy.limit_use(key)]).await;
        let mut usage = usage.expect("read").remove(0);
        usage.holders.sort();
        (usage.capacity, usage.available, usage.holders)
    }

    pub(super) async fn maintain(&self) -> Maintained {
        self.limiter.maintain(1000).await.expect("maintained")
    }

    /// Waits, a moment at a time, until there is so much room.
    pub(super) async fn wait_for_room(&self, policy: &Policy, key: &str, room: u32) {
        while self.room(policy, key).await < room {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(super) async fn admit(holder: &dyn SlotHolder, requests: Vec<AdmitRequest>) -> Vec<Admission> {
    let count = requests.len();
    let answers = holder.admit(requests).await.expect("decided");
    assert_eq!(answers.len(), count, "an answer for each request");
    answers
}

pub(super) fn is_admitted(answer: &Admission) -> bool {
    matches!(answer, Admission::Admitted(_))
}

pub(super) fn admitted(answers: &[Admission]) -> usize {
    answers.iter().filter(|answer| is_admitted(answer)).count()
}

pub(super) fn slots_of(answers: &[Admission]) -> Vec<Slot> {
    let slots = answers.iter().filter_map(|answer| match answer {
        Admission::Admitted(slot) => slot.clone(),
        _ => None,
    });
    slots.collect()
}

/// One letter for each answer: admitted, denied by the gate or the rate, too heavy.
pub(super) fn letters(answers: &[Admission]) -> String {
    let letter = |answer: &Admission| match answer {
        Admission::Admitted(_) => 'a',
        Admission::Denied {
            by: LimitKind::Gate, ..
        } => 'g',
        Admission::Denied {
            by: LimitKind::Rate, ..
        } => 'r',
        Admission::TooHeavy { .. } => 'h',
    };
    answers.iter().map(letter).collect()
}
