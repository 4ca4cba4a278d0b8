//! Errors: each says what happened, with which value, and what to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::{InstanceId, MAX_DURATION, MachineKey};

/// Any error of a step: `?` works on every error type, on `anyhow::Error`, and on text.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A value that was refused before anything was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidValue {
    /// A name or key is empty.
    #[error("{field} is empty; give it at least one character")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A name or key is too long.
    #[error("{field} has {bytes} bytes; the limit is {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// A name or key holds a control character.
    #[error("{field} \"{value}\" holds a control character; use printable characters only")]
    ControlCharacter {
        /// The field.
        field: &'static str,
        /// The value, escaped.
        value: String,
    },
    /// A duration or instant is out of range.
    #[error("{field} lies {seconds} s away; the limit is 100 years ({} s)", MAX_DURATION.as_secs())]
    TooFar {
        /// The field.
        field: &'static str,
        /// How far it lies away, in seconds.
        seconds: u64,
    },
    /// A number that must be at least 1.
    #[error("{field} is 0; give it at least 1")]
    Zero {
        /// The field.
        field: &'static str,
    },
    /// The name of a limit ends where its keys have a colon.
    #[error(
        "the limit name \"{value}\" holds a colon; what follows the first colon of a key is its partition"
    )]
    ColonInLimitName {
        /// The name.
        value: String,
    },
    /// No rate limit of this name is configured.
    #[error(
        "no rate limit \"{name}\" is configured; set it with Client::set_limit first, or check the name before the colon"
    )]
    UnknownRateLimit {
        /// The name.
        name: String,
    },
    /// A weight that its rate limit can never pay for.
    #[error(
        "weight {weight} is above the burst of rate limit \"{name}\", which is {burst}; it could never start"
    )]
    TooHeavy {
        /// The name.
        name: String,
        /// The weight.
        weight: u32,
        /// The most that is allowed.
        burst: u32,
    },
    /// A weight without a rate limit.
    #[error("a weight was given without a rate limit; give the rate limit too")]
    WeightWithoutRateLimit,
    /// Text that names no status.
    #[error("\"{value}\" is not a status")]
    UnknownStatus {
        /// The text.
        value: String,
    },
    /// A scope in which a new instance would not hold its key.
    #[error(
        "the correlation scope must hold the status runnable, else a new instance would not hold its key"
    )]
    ScopeWithoutRunnable,
    /// A scope without a key.
    #[error("a correlation scope was given without a correlation key; give the key too")]
    ScopeWithoutKey,
}

/// A value that cannot be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Serde refused the value.
    #[error("the value cannot be serialised to JSON: {0}")]
    Serialize(#[source] serde_json::Error),
    /// The encoded value is too large.
    #[error("the value has {bytes} bytes as JSON; the limit is {limit}")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// Postgres cannot store U+0000 in JSON text.
    #[error("the value holds the character U+0000 (NUL), which Postgres cannot store in JSON")]
    NulCharacter,
    /// A step that is not a plain name.
    #[error("the step must serialise to a plain string (an enum without fields), not to {found}")]
    StepNotAName {
        /// What it serialised to.
        found: String,
    },
    /// A value of the outcome is out of range.
    #[error(transparent)]
    Invalid(#[from] InvalidValue),
    /// A wait for no signal at all.
    #[error("await_signals was given no signal name, so nothing could ever wake it; give it at least one")]
    NoSignals,
    /// A wait for the first 0 children.
    #[error(
        "schedule_children was told to wait for the first 0 children; say 1 or more, or use next to not wait"
    )]
    FirstZero,
    /// A child that cannot be inserted.
    #[error("child {index} of schedule_children (counted from 0) cannot be inserted: {source}")]
    Child {
        /// Which, in the order in which they were given.
        index: usize,
        /// Why.
        source: Box<InsertError>,
    },
}

/// What a store answers when it could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was committed, and the same call may succeed later: a lost connection before the statement
    /// was sent, a serialisation failure, a deadlock, a server that is starting.
    #[error("the store is not available: {message}")]
    Transient {
        /// What the driver said.
        message: String,
    },
    /// The call was sent and its answer was lost: it may or may not have been committed.
    #[error("the answer of the store was lost, so the call may or may not have been committed: {message}")]
    Unknown {
        /// What the driver said.
        message: String,
    },
    /// The store refused a value. In a batch, one of its entries is to blame; nothing was committed.
    #[error("the store refused a value: {message}")]
    Refused {
        /// What the store said.
        message: String,
    },
    /// The worker is no longer alive in the store's eyes; register a new one (rule LEASE-4).
    #[error("the worker is not known to the store any more: its lease ended and its work was taken back")]
    WorkerDead,
    /// Anything else: a bug, a missing table, a missing privilege.
    #[error("the store failed: {message}")]
    Fatal {
        /// What the store said.
        message: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. } | Self::Unknown { .. })
    }
}

/// Why an insert failed. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// A value is out of range.
    #[error(transparent)]
    Invalid(#[from] InvalidValue),
    /// The state cannot be stored.
    #[error("the state of a new {machine} instance cannot be stored: {source}")]
    State {
        /// The machine.
        machine: MachineKey,
        /// Why.
        source: EncodeError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a signal was not delivered. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// A value is out of range.
    #[error(transparent)]
    Invalid(#[from] InvalidValue),
    /// The payload cannot be stored.
    #[error("the payload of signal \"{name}\" cannot be stored: {source}")]
    Payload {
        /// The signal's name.
        name: String,
        /// Why.
        source: EncodeError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why waiting for a result ended without one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The instance is not there: it never was, or retention removed it.
    #[error("instance {id} is not in the store; it may have been removed by retention")]
    NotFound {
        /// The instance.
        id: InstanceId,
    },
    /// The instance failed or was cancelled.
    #[error("instance {id} ended without a result: {failure}")]
    Failed {
        /// The instance.
        id: InstanceId,
        /// Why.
        failure: Failure,
    },
    /// The deadline passed first; the work goes on. Waiting again with the same id is the retry.
    #[error("instance {id} was still at work after {waited:?}; wait again with the same id")]
    Busy {
        /// The instance.
        id: InstanceId,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The result does not fit the type that was asked for.
    #[error("the result of instance {id} does not fit the type asked for: {source}")]
    Decode {
        /// The instance.
        id: InstanceId,
        /// Why.
        source: serde_json::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a configuration or start was refused. All faults are listed, and nothing was done (rule OPS-7).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration has faults.
    #[error("the engine's configuration has {} fault(s): {}", .faults.len(), .faults.join("; "))]
    Configuration {
        /// Each fault, naming its option.
        faults: Vec<String>,
    },
    /// An engine of this name already runs in this process on the same store.
    #[error("an engine named \"{name}\" already runs in this process; give one of them another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What went wrong in a step, as kept with the instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// For people.
    pub message: String,
}

/// The kinds of failure (rule FSM-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The step returned an error.
    Error,
    /// The step panicked.
    Panic,
    /// The step ran longer than its own timeout.
    Timeout,
    /// The outcome cannot be stored.
    Encoding,
    /// The stored state or step does not fit the machine's types.
    Decoding,
    /// The process died, or lost its lease, while it ran this step, too often in a row.
    Crash,
    /// A rate limit can never let the step start as it is.
    Limit,
    /// The machine said stop.
    Stopped,
    /// The machine or an operator said cancel.
    Cancelled,
}

/// The longest message that is kept, in bytes; the rest is cut.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

impl Failure {
    /// A failure with a message that is always storable: NUL characters are replaced, and it is cut to 8 KiB.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.contains('\0') {
            message = message.replace('\0', "\u{fffd}");
        }
        if message.len() > MAX_MESSAGE_BYTES {
            let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
            message.truncate(end);
            message.push_str(" ...");
        }
        Self { kind, message }
    }

    /// A failure from an error and all its sources.
    #[must_use]
    pub fn from_error(error: &Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = cause.source();
        }
        Self::new(FailureKind::Error, message)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_always_storable() {
        // contract: FSM-4
        let failure = Failure::new(FailureKind::Error, format!("a\0{}", "é".repeat(9000)));
        assert!(crate::types::Json::encode(&failure).is_ok());
        assert!(failure.message.len() < 9000);
    }
}
