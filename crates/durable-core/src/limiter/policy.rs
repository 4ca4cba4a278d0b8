//! What a limit allows.

use std::fmt;
use std::time::Duration;

use crate::error::InvalidValue;
use crate::types::{LimitName, checked_duration};

/// The two kinds of configured limits. The same name may stand for a gate and for a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// At most so many at once.
    Gate,
    /// At most so many starts per period.
    Rate,
}

impl LimitKind {
    /// The name, as it stands in the store, in metrics and in docs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Rate => "rate",
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What a limit allows for each of its keys.
///
/// ```
/// use std::time::Duration;
/// use durable_core::Limit;
///
/// // At most 10 steps at once for each key "sync:...".
/// let gate = Limit::gate(10);
/// // At most 100 starts per second for each key "mail:...", up to 500 at once after a quiet while.
/// let rate = Limit::rate(100, Duration::from_secs(1)).burst(500);
/// # assert_ne!(gate, rate);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// A gate.
    Gate {
        /// The most slots of one key; at least 1.
        capacity: u32,
    },
    /// A rate limit: a token bucket.
    Rate {
        /// How many tokens are added per period; 0: none ever.
        allowed: u32,
        /// The period; never 0.
        period: Duration,
        /// The most tokens of one key, and what a new key has; at least 1.
        burst: u32,
    },
}

impl Limit {
    /// At most `capacity` at once for each key.
    #[must_use]
    pub const fn gate(capacity: u32) -> Self {
        Self::Gate { capacity }
    }

    /// At most `allowed` starts per period for each key. The burst is the same number, until it is said.
    #[must_use]
    pub const fn rate(allowed: u32, period: Duration) -> Self {
        Self::Rate {
            allowed,
            period,
            burst: allowed,
        }
    }

    /// How many starts may come at once after a quiet while. Means nothing for a gate.
    #[must_use]
    pub const fn burst(mut self, tokens: u32) -> Self {
        if let Self::Rate { burst, .. } = &mut self {
            *burst = tokens;
        }
        self
    }

    /// Which kind it is.
    #[must_use]
    pub const fn kind(&self) -> LimitKind {
        match self {
            Self::Gate { .. } => LimitKind::Gate,
            Self::Rate { .. } => LimitKind::Rate,
        }
    }

    /// How long a rate limit takes to add so many tokens; `None` when it never does, and for a gate.
    #[must_use]
    pub fn refill_time(&self, tokens: u32) -> Option<Duration> {
        match self {
            Self::Rate { allowed, period, .. } if *allowed > 0 => {
                let micros = (period.as_micros() * u128::from(tokens)).div_ceil(u128::from(*allowed));
                Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
            }
            _ => None,
        }
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`InvalidValue`] when a gate has no slot, a rate limit has no burst, or its period is zero or longer than 100
    /// years.
    pub fn check(&self) -> Result<(), InvalidValue> {
        let zero = |field| Err(InvalidValue::Zero { field });
        match self {
            Self::Gate { capacity: 0 } => zero("the capacity of a gate"),
            Self::Rate { burst: 0, .. } => zero("the burst of a rate limit"),
            Self::Rate { period, .. } if period.as_micros() == 0 => zero("the period of a rate limit"),
            Self::Rate { period, .. } => checked_duration("the period of a rate limit", *period).map(drop),
            Self::Gate { .. } => Ok(()),
        }
    }
}

/// A limit as the store has it: the same for all nodes (rule LIM-8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPolicy {
    /// Its name: the part of its keys before the first `:`.
    pub name: LimitName,
    /// What it allows.
    pub limit: Limit,
    /// Over how many counters the budget of one key is split, so that nodes do not wait for each other; at least 1,
    /// and never more than the budget has units. A backend whose decisions are one at a time anyway ignores it.
    pub shards: u16,
    /// Rises with every change of any limit.
    pub version: i64,
}
