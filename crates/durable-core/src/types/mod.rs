//! The newtypes that every other module speaks in.

mod name;

use std::borrow::Cow;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{EncodeError, InvalidValue};

use name::checked_name;
pub use name::{ConcurrencyKey, CorrelationKey, DeduplicationKey, LimitName, QueueName, RateKey, SignalName};

/// The longest delay, timeout or retention that is accepted: 100 years (rule OUT-5).
pub const MAX_DURATION: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// The largest encoded state, result or payload, in bytes: 16 MiB.
///
/// Postgres can hold more, but a row of this size already costs every reader of it; larger values belong in
/// a table or object store of your own.
pub const MAX_JSON_BYTES: usize = 16 * 1024 * 1024;

/// The longest queue, machine or step name and the longest key, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// The identity of one instance, given by the store at insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(i64);

impl InstanceId {
    /// Wraps the number that the store gave.
    #[must_use]
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// The number itself, as it stands in the store.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for InstanceId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The identity of one incarnation of a running engine, given by the store when the engine registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(i64);

impl WorkerId {
    /// Wraps the number that the store gave.
    #[must_use]
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The number of one claimed batch. The worker gives it, before it asks, so that a claim whose answer was
/// lost can still be named (rule CLAIM-6). Numbers of one worker only ever rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimNumber(i64);

impl ClaimNumber {
    /// Wraps a number.
    #[must_use]
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// What proves that a worker still owns an instance: the claim, which must still exist, and the fencing
/// number that the instance had when it was claimed (rule CLAIM-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The claimed batch.
    pub claim: ClaimNumber,
    /// The fencing number of the instance.
    pub seq: i32,
}

/// Which machine an instance runs: its name and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineKey {
    name: Cow<'static, str>,
    version: u16,
}

impl MachineKey {
    /// Checks and wraps a name and version.
    ///
    /// # Errors
    /// [`InvalidValue`] when the name is empty, longer than 255 bytes, or holds a control character.
    pub fn new(name: impl Into<Cow<'static, str>>, version: u16) -> Result<Self, InvalidValue> {
        Ok(Self {
            name: checked_name("machine", name.into())?,
            version,
        })
    }

    /// The machine's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine's version.
    #[must_use]
    pub const fn version(&self) -> u16 {
        self.version
    }
}

impl fmt::Display for MachineKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} v{}", self.name, self.version)
    }
}

/// Refuses a duration that is longer than [`MAX_DURATION`].
pub(crate) fn checked_duration(field: &'static str, duration: Duration) -> Result<Duration, InvalidValue> {
    if duration > MAX_DURATION {
        return Err(InvalidValue::TooFar {
            field,
            seconds: duration.as_secs(),
        });
    }
    Ok(duration)
}

/// JSON text that any store can hold: valid, within [`MAX_JSON_BYTES`], and without the NUL character that
/// Postgres refuses (rule FSM-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Json {
    /// Encodes a value.
    ///
    /// # Errors
    /// [`EncodeError`] when the value cannot be serialised, is too large, or holds a NUL character.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, EncodeError> {
        let text = serde_json::to_string(value).map_err(EncodeError::Serialize)?;
        if text.len() > MAX_JSON_BYTES {
            return Err(EncodeError::TooLarge {
                bytes: text.len(),
                limit: MAX_JSON_BYTES,
            });
        }
        if holds_nul(&text) {
            return Err(EncodeError::NulCharacter);
        }
        Ok(Self(text.into_boxed_str()))
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// The serde error, when the text does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Wraps text that a store has kept, and so has checked before.
    #[must_use]
    pub fn from_store(text: String) -> Self {
        Self(text.into_boxed_str())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether encoded JSON holds the escape `\u0000` (an escaped backslash before `u0000` is not one).
fn holds_nul(json: &str) -> bool {
    let bytes = json.as_bytes();
    json.match_indices("\\u0000").any(|(at, _)| {
        let backslashes_before = bytes[..at]
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count();
        backslashes_before % 2 == 0
    })
}

/// Where an instance stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// May be claimed, now or at its eligible time.
    Runnable,
    /// Held by an open claim.
    Executing,
    /// Parked until a signal or a timeout.
    AwaitingSignal,
    /// Parked until its children are terminal.
    AwaitingChildren,
    /// Finished with a result.
    Done,
    /// Finished with an error.
    Failed,
    /// Finished by a cancellation.
    Cancelled,
}

impl Status {
    /// All statuses, in the order of a life.
    pub const ALL: [Self; 7] = [
        Self::Runnable,
        Self::Executing,
        Self::AwaitingSignal,
        Self::AwaitingChildren,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether nothing more will run.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// The name, as it stands in the store, in metrics and in docs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runnable => "runnable",
            Self::Executing => "executing",
            Self::AwaitingSignal => "awaiting_signal",
            Self::AwaitingChildren => "awaiting_children",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| InvalidValue::UnknownStatus {
                value: text.to_owned(),
            })
    }
}

/// The statuses in which a correlation key counts as taken (rule ID-2).
///
/// Once an instance has left its scope the key is free, and that instance never takes it again, even if a
/// retry brings it back into a status of the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope(u8);

impl Scope {
    /// All non-terminal statuses: the default.
    pub const UNTIL_TERMINAL: Self = Self::until_terminal();
    /// Only until the first step starts: another instance with the key may queue up behind a running one.
    pub const UNTIL_STARTED: Self = Self(1 << Status::Runnable as u8);
    /// All statuses: the key is taken until the instance is removed by retention.
    pub const UNTIL_REMOVED: Self = Self(0b0111_1111);

    const fn until_terminal() -> Self {
        Self(0b0000_1111)
    }

    /// A scope of your own.
    ///
    /// # Errors
    /// [`InvalidValue::ScopeWithoutRunnable`] when `runnable` is missing: a new instance would not hold its key.
    pub fn of(statuses: &[Status]) -> Result<Self, InvalidValue> {
        let bits = statuses.iter().fold(0, |bits, status| bits | 1 << *status as u8);
        let scope = Self(bits);
        if scope.contains(Status::Runnable) {
            Ok(scope)
        } else {
            Err(InvalidValue::ScopeWithoutRunnable)
        }
    }

    /// Whether the key counts as taken in this status.
    #[must_use]
    pub const fn contains(self, status: Status) -> bool {
        self.0 & (1 << status as u8) != 0
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::UNTIL_TERMINAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_is_found_only_as_an_escape_of_its_own() {
        // contract: FSM-4
        assert!(matches!(Json::encode("a\0b"), Err(EncodeError::NulCharacter)));
        assert!(
            Json::encode("a\\u0000b").is_ok(),
            "a backslash followed by u0000 is ordinary text"
        );
        assert!(matches!(Json::encode("\\\0"), Err(EncodeError::NulCharacter)));
    }

    #[test]
    fn too_large_is_refused() {
        // contract: FSM-4
        let text = "x".repeat(MAX_JSON_BYTES);
        assert!(matches!(Json::encode(&text), Err(EncodeError::TooLarge { .. })));
    }

    #[test]
    fn names_are_checked() {
        // contract: INS-1
        assert!(QueueName::new("default").is_ok());
        assert!(matches!(
            QueueName::new(""),
            Err(InvalidValue::Empty { field: "queue" })
        ));
        assert!(matches!(
            QueueName::new("a\0"),
            Err(InvalidValue::ControlCharacter { .. })
        ));
        assert!(matches!(
            QueueName::new("x".repeat(256)),
            Err(InvalidValue::TooLong { .. })
        ));
    }

    #[test]
    fn a_scope_must_hold_runnable() {
        // contract: ID-2
        assert!(Scope::of(&[Status::Executing]).is_err());
        let scope = Scope::of(&[Status::Runnable, Status::Done]).unwrap();
        assert!(scope.contains(Status::Done) && !scope.contains(Status::Failed));
        assert!(!Scope::UNTIL_TERMINAL.contains(Status::Done));
        assert!(Scope::UNTIL_TERMINAL.contains(Status::AwaitingChildren));
    }
}
