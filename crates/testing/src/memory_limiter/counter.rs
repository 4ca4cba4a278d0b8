//! One counter: what of a key's budget is spent.

use std::time::Duration;

use durable_core::limiter::{Limit, LimitPolicy};

/// The budget of one key of either kind. `spent` is all that it knows: a policy decides how much that leaves.
pub(super) struct Counter {
    pub(super) policy: LimitPolicy,
    spent: u64,
    /// What has been refilled beyond whole tokens, so that none is lost: a token is as many of these as its period has
    /// microseconds.
    fraction: u128,
    /// Until when it has been refilled.
    refilled: Duration,
}

impl Counter {
    /// A key that was never used.
    pub(super) fn full(policy: &LimitPolicy, now: Duration) -> Self {
        Self {
            policy: policy.clone(),
            spent: 0,
            fraction: 0,
            refilled: now,
        }
    }

    /// Brings it up to now, and to the newer of the two policies. What is spent stays spent.
    pub(super) fn settle(&mut self, policy: &LimitPolicy, now: Duration) {
        self.refill(now);
        if policy.version > self.policy.version {
            self.fraction = self.fraction * period(policy) / period(&self.policy);
            self.policy = policy.clone();
        }
    }

    fn refill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.refilled).as_micros();
        self.refilled = now;
        let Limit::Rate { allowed, .. } = self.policy.limit else {
            return;
        };
        let units = self.fraction + elapsed * u128::from(allowed);
        let tokens = units / period(&self.policy);
        if tokens >= u128::from(self.spent) {
            self.spent = 0;
            self.fraction = 0;
        } else {
            self.spent -= u64::try_from(tokens).unwrap_or(self.spent);
            self.fraction = units % period(&self.policy);
        }
    }

    /// The most that it can hold.
    pub(super) fn capacity(&self) -> u32 {
        match self.policy.limit {
            Limit::Gate { capacity } => capacity,
            Limit::Rate { burst, .. } => burst,
            _ => 0,
        }
    }

    /// How much is left; nothing while more is spent than the policy allows by now.
    pub(super) fn room(&self) -> u32 {
        let left = u64::from(self.capacity()).saturating_sub(self.spent);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// As good as never used.
    pub(super) fn is_full(&self) -> bool {
        self.spent == 0
    }

    pub(super) fn take(&mut self, count: u32) {
        self.spent += u64::from(count);
    }

    pub(super) fn give_back(&mut self, count: u64) {
        self.spent = self.spent.saturating_sub(count);
    }

    /// When there is room for so many, if time alone brings it.
    pub(super) fn room_in(&self, count: u32) -> Option<Duration> {
        let Limit::Rate { allowed, .. } = self.policy.limit else {
            return None;
        };
        if allowed == 0 {
            return None;
        }
        let missing = (self.spent + u64::from(count)).saturating_sub(u64::from(self.capacity()));
        let units = (u128::from(missing) * period(&self.policy)).saturating_sub(self.fraction);
        let micros = units.div_ceil(u128::from(allowed));
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }
}

/// The period of a rate limit in microseconds.
fn period(policy: &LimitPolicy) -> u128 {
    match policy.limit {
        Limit::Rate { period, .. } => period.as_micros().max(1),
        _ => 1,
    }
}
