//! What holds instances back, and what a store keeps of it (rules LIM-1, LIM-7, LIM-8).

use std::sync::Arc;
use std::time::Duration;

use crate::limiter::{LimitKind, LimitPolicy};
use crate::types::{ConcurrencyKey, InstanceId, QueueName, RateKey};

/// What holds an instance back before its next step starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// One at a time for each key, or as many as its gate allows.
    pub concurrency: Option<ConcurrencyKey>,
    /// The rate limit that the next step takes tokens from.
    pub rate: Option<RateDemand>,
}

impl Limits {
    /// Whether nothing holds it back.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.concurrency.is_none() && self.rate.is_none()
    }
}

/// How many tokens of which bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateDemand {
    /// The bucket.
    pub key: RateKey,
    /// How many tokens; at least 1.
    pub weight: u32,
}

/// A key that instances can wait for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKey {
    /// A concurrency key, with or without a gate.
    Concurrency(ConcurrencyKey),
    /// A rate limit key.
    Rate(RateKey),
}

impl LimitKey {
    /// The text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Concurrency(key) => key.as_str(),
            Self::Rate(key) => key.as_str(),
        }
    }

    /// The name of the limit that it belongs to, if one is configured: the part before the first `:`.
    #[must_use]
    pub fn limit_name(&self) -> &str {
        match self {
            Self::Concurrency(key) => key.limit_name(),
            Self::Rate(key) => key.limit_name(),
        }
    }

    /// The kind of limit that it belongs to.
    #[must_use]
    pub const fn kind(&self) -> LimitKind {
        match self {
            Self::Concurrency(_) => LimitKind::Gate,
            Self::Rate(_) => LimitKind::Rate,
        }
    }
}

/// Brings instances back that wait for a key (rule LIM-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BringBack {
    /// The key.
    pub key: LimitKey,
    /// How many may come: slots of a gate, tokens of a rate limit. A key without a gate has room for one when nobody
    /// holds it, whatever is said here.
    pub room: u32,
    /// How long a rate limit takes for one more token; `None` when there is no telling.
    pub unit: Option<Duration>,
}

/// What became of one [`BringBack`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BroughtBack {
    /// How many came back.
    pub instances: u64,
    /// Their queues, each once.
    pub queues: Vec<QueueName>,
    /// When to look again, if instances still wait.
    pub look_in: Option<Duration>,
}

/// Keys that it is time to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueKeys {
    /// The keys; nobody else looks at them for a moment.
    pub keys: Vec<LimitKey>,
    /// How long until the next one, if more are known.
    pub next: Option<Duration>,
    /// The version of the policies, as of now.
    pub limits_version: i64,
}

/// All limits, as of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The version of the newest change.
    pub version: i64,
    /// The limits, in no order.
    pub limits: Vec<Arc<LimitPolicy>>,
}

/// How a key stands in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyStanding {
    /// How many instances wait for it.
    pub waiting: u64,
    /// Who holds a key without a gate.
    pub holder: Option<InstanceId>,
    /// For how much longer nothing with the key starts, because an operator said so.
    pub paused_for: Option<Duration>,
}
