//! What an insert takes and answers.

use std::time::{Duration, SystemTime};

use super::limit::Limits;
use crate::types::{CorrelationKey, InstanceId, Json, MachineKey, QueueName, Scope};

/// When an instance may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligible {
    /// This long after the store's now.
    In(Duration),
    /// At an instant, as the caller's clock knows it.
    At(SystemTime),
}

/// One instance to insert: checked and encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInstance {
    /// The machine that it runs.
    pub machine: MachineKey,
    /// The queue that it is claimed from.
    pub queue: QueueName,
    /// Lower first.
    pub priority: i16,
    /// When it may be claimed first.
    pub eligible: Eligible,
    /// Its first step.
    pub step: String,
    /// Its state.
    pub state: Json,
    /// Its business identity, and while it counts as taken.
    pub correlation: Option<(CorrelationKey, Scope)>,
    /// What holds its first step back.
    pub limits: Limits,
}

/// What became of one entry of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inserted {
    /// A new instance.
    New(InstanceId),
    /// The correlation key is taken by this instance; nothing was inserted.
    Duplicate(InstanceId),
}

impl Inserted {
    /// The new instance, or the one that holds the key.
    #[must_use]
    pub const fn id(self) -> InstanceId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// Whether nothing was inserted because the key is taken.
    #[must_use]
    pub const fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate(_))
    }
}
