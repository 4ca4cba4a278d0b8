//! What the maintenance roles do in one round.

use std::time::Duration;

use crate::types::{ConcurrencyKey, QueueName};

/// What the reaper did in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// How many workers it declared dead.
    pub workers: u64,
    /// How many instances it returned to runnable.
    pub instances: u64,
    /// Whether there is more to do at once: while it is true, ask again. True only if this round got on, as
    /// what other transactions hold is left for later.
    pub more: bool,
    /// The concurrency keys without a gate that it freed, and that others wait for.
    pub freed: Vec<ConcurrencyKey>,
}

/// How long terminal instances are kept, by status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long done instances are kept; default one day.
    pub done: Duration,
    /// How long failed instances are kept; default one day.
    pub failed: Duration,
    /// How long cancelled instances are kept; default one day.
    pub cancelled: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self {
            done: day,
            failed: day,
            cancelled: day,
        }
    }
}

/// What the collector did in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many instances it removed.
    pub instances: u64,
    /// Whether there is more to do at once: while it is true, ask again. True only if this round got on, as
    /// what other transactions hold is left for later.
    pub more: bool,
}

/// What one round of firing deadlines did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many instances were woken by their deadline.
    pub instances: u64,
    /// Their queues. In order, each once.
    pub woken: Vec<QueueName>,
    /// How long until the next deadline that is not due yet; `None` when there is none.
    pub next: Option<Duration>,
    /// Whether there is more to do at once: while it is true, ask again. True only if this round got on, as
    /// what other transactions hold is left for later.
    pub more: bool,
}
