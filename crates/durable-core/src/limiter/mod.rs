//! The border to a limiter: what the runtime asks of whoever counts gates and rate limits (rules LIM-2 to LIM-6).
//!
//! A [`Limiter`] is a backend: Postgres, Redis, or the model in memory. A running engine, or a client whose caller
//! spends from the limits, is a [`SlotHolder`] of it. One-at-a-time keys are none of its business: the claim itself
//! is their lock (rule LIM-1).
//!
//! Policies are the store's, and each call carries them. A backend keeps with its counters the version that it has
//! last seen, and an older one never undoes a newer one (rule LIM-8). When a policy changes, what is spent stays spent:
//! a budget that grows by three leaves three more, one that shrinks below what is spent admits nothing until
//! slots have come back, or tokens have been refilled, to less than it.

mod policy;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::types::{ConcurrencyKey, RateKey};

pub use policy::{Limit, LimitKind, LimitPolicy};

/// Counts gates and rate limits for all processes that share it.
///
/// # Cancel safety
/// A call that is dropped midway may or may not take effect. Slots that it took and nobody knows of are had back by a
/// later renewal of their holder; tokens are spent. Implementations never leave a counter wrong.
#[async_trait]
pub trait Limiter: Send + Sync + 'static {
    /// What metrics call it: short, and the same for all of its kind.
    fn name(&self) -> &'static str;

    /// Joins: slots of the new holder are trusted for `lease` after each renewal, and joining counts as one. `label` tells
    /// people who it is. A lease of zero has ended as soon as it begins.
    ///
    /// # Errors
    /// [`LimiterError`]: the backend cannot be reached.
    async fn join(&self, label: &str, lease: Duration) -> Result<Arc<dyn SlotHolder>, LimiterError>;

    /// How much each of these limits has left now, in the caller's order. For a gate the free slots, for a rate
    /// limit the tokens; a key that was never used has all of its budget.
    ///
    /// # Errors
    /// [`LimiterError`]: the backend cannot be reached.
    async fn room(&self, keys: Vec<LimitUse>) -> Result<Vec<u32>, LimiterError>;

    /// How each of these limits stands, for people, in the caller's order.
    ///
    /// # Errors
    /// [`LimiterError`]: the backend cannot be reached.
    async fn usage(&self, keys: Vec<LimitUse>) -> Result<Vec<LimitUsage>, LimiterError>;

    /// One round of repair: the slots of holders whose lease has ended are had back, and at most about `limit` keys
    /// that are as good as never used are forgotten, all shards of a key or none (rule LIM-11). Safe to run in
    /// many processes at once.
    ///
    /// # Errors
    /// [`LimiterError`]: the backend cannot be reached.
    async fn maintain(&self, limit: usize) -> Result<Maintained, LimiterError>;
}

/// One holder of slots: an engine, or a client whose caller spends from the limits.
///
/// # Cancel safety
/// As that of [`Limiter`].
#[async_trait]
pub trait SlotHolder: Send + Sync {
    /// Decides on each request, in order, and all requests of one call in as few round trips as can be. Of two
    /// requests for one key the first is served first, and once a key has denied a request it denies all later ones
    /// of the call: a light request never overtakes a heavy one of its key (rule LIM-7). A request with a gate and a
    /// rate limit needs both, and takes neither when one denies (rule LIM-4); it is denied by that one alone, and does
    /// not hold up later requests for the other.
    ///
    /// A denial is true: there was no room, and whoever makes some will know of it. A key that happens to be busy
    /// is waited for.
    ///
    /// The answers stand in the caller's order.
    ///
    /// # Errors
    /// [`LimiterError`]: nothing may be taken as admitted. The backend cannot be reached; or this holder has left; or its
    /// slots were had back after its lease had ended, and it has not been renewed since.
    async fn admit(&self, requests: Vec<AdmitRequest>) -> Result<Vec<Admission>, LimiterError>;

    /// Gives slots back. One that is gone already, as the lease ended in between, changes nothing: no slot is ever
    /// given back twice.
    ///
    /// # Errors
    /// [`LimiterError`]: some may have been given back; the same call again is safe.
    async fn credit(&self, slots: Vec<Slot>) -> Result<(), LimiterError>;

    /// Extends the lease of all slots that this holder has. Neither brings a credited slot back to life, nor loses one
    /// that is live (rule LIM-10). When its slots were had back, because the lease had ended, it says so once, and goes
    /// on with none. Gives back what a call has taken whose answer never came.
    ///
    /// Never waits for a call of another kind: it may be called from a thread and runtime of its own.
    ///
    /// # Errors
    /// [`LimiterError`]: the lease runs on from the last renewal.
    async fn renew(&self) -> Result<Renewed, LimiterError>;

    /// Gives everything back, and ends. What is admitted afterwards is an error.
    ///
    /// # Errors
    /// [`LimiterError`]: what is left is had back when the lease ends.
    async fn leave(&self) -> Result<(), LimiterError>;
}

/// What a step that is about to start needs; at least one of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitRequest {
    /// A slot of this gate.
    pub gate: Option<GateUse>,
    /// So many tokens of this rate limit.
    pub rate: Option<RateUse>,
}

/// A gate, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateUse {
    /// The key.
    pub key: ConcurrencyKey,
    /// The policy of its name; its limit is a [`Limit::Gate`].
    pub policy: Arc<LimitPolicy>,
}

/// A rate limit, what is allowed there, and how much a step takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateUse {
    /// The key.
    pub key: RateKey,
    /// The policy of its name; its limit is a [`Limit::Rate`].
    pub policy: Arc<LimitPolicy>,
    /// How many tokens; 1 or more.
    pub weight: u32,
}

/// A key of either kind, with its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitUse {
    /// A gate.
    Gate(GateUse),
    /// A rate limit; what it weighs is of no matter.
    Rate(RateUse),
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may start. With a gate, this slot must be given back when it has ended.
    Admitted(Option<Slot>),
    /// There is no room.
    Denied {
        /// Which of the two has none; the gate when neither has.
        by: LimitKind,
        /// When there may be: at a rate limit, how long until it has refilled enough, if it ever does. `None` at a
        /// gate: when somebody gives a slot back.
        look_in: Option<Duration>,
    },
    /// The weight is above what the rate limit can ever hold, by the newest policy that the backend has seen; nothing
    /// was taken, and nothing behind it is held up.
    TooHeavy {
        /// The most that a request may weigh.
        burst: u32,
    },
}

/// One slot of a gate, in the hand of the holder that was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The gate.
    pub gate: ConcurrencyKey,
    /// Which shard it was taken from; 0 for a backend without shards.
    pub shard: u16,
    /// Tells the slots of one holder apart: never given twice by it.
    pub number: u64,
}

/// What a renewal found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Slots that are lost: the lease had ended, and others have been admitted in their place. Whoever runs on them
    /// must stop.
    pub lost: Vec<Slot>,
}

/// What a round of repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Gates that have got slots back, each once.
    pub freed: Vec<ConcurrencyKey>,
    /// How many slots were had back.
    pub reconciled: u64,
    /// How many keys were forgotten.
    pub swept: u64,
}

/// How a limit stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitUsage {
    /// The most that it can hold: the slots of a gate, the burst of a rate limit.
    pub capacity: u32,
    /// How much is left now.
    pub available: u32,
    /// Who holds slots of a gate, by label, and how many. Labels may repeat.
    pub holders: Vec<(String, u32)>,
}

impl LimitUsage {
    /// How a limit stands.
    #[must_use]
    pub const fn new(capacity: u32, available: u32, holders: Vec<(String, u32)>) -> Self {
        Self {
            capacity,
            available,
            holders,
        }
    }
}

/// The backend of the limits failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the {limiter} limiter failed, so steps with a gate or a rate limit wait: {message}")]
pub struct LimiterError {
    /// The name of the limiter.
    pub limiter: &'static str,
    /// What went wrong.
    pub message: String,
}
