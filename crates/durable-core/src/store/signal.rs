//! Signals: durable messages in the inbox of an instance.

use crate::types::{CorrelationKey, DeduplicationKey, InstanceId, Json, QueueName, SignalName};

/// Whom a signal or an operation is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An instance, by its id.
    Id(InstanceId),
    /// The instance that holds this correlation key (rule ID-1).
    Key(CorrelationKey),
}

impl From<InstanceId> for Target {
    fn from(id: InstanceId) -> Self {
        Self::Id(id)
    }
}

impl From<CorrelationKey> for Target {
    fn from(key: CorrelationKey) -> Self {
        Self::Key(key)
    }
}

/// A signal to deliver: checked and encoded.
#[derive(Clone, Debug)]
pub struct NewSignal {
    /// Whom it is for.
    pub target: Target,
    /// Its name.
    pub name: SignalName,
    /// What it says.
    pub payload: Json,
    /// A second signal with this key to the same instance is a duplicate, also after the first was consumed.
    pub deduplication_key: Option<DeduplicationKey>,
}

/// What became of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignalFate {
    /// It is in the inbox of this instance.
    Stored(InstanceId),
    /// The deduplication key was used before for this instance; nothing was stored.
    Duplicate(InstanceId),
    /// The target is missing or terminal, or nobody holds the key; nothing was stored.
    NoTarget,
}

/// What a delivery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// What became of each signal, in the caller's order.
    pub fates: Vec<SignalFate>,
    /// The queues in which the delivery woke instances. In order, each once.
    pub woken: Vec<QueueName>,
}

/// A signal in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number in the inbox: 1 for the first that the instance ever received.
    pub number: u32,
    /// Its name.
    pub name: SignalName,
    /// What it says.
    pub payload: Json,
}
