//! Names and keys: text of 1 to 255 bytes without control characters, each kind a type of its own.

use std::borrow::Cow;
use std::fmt;

use super::MAX_NAME_BYTES;
use crate::error::InvalidValue;

macro_rules! name_type {
    ($(#[$what:meta])* $name:ident, $field:literal) => {
        $(#[$what])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Cow<'static, str>);

        impl $name {
            /// Checks and wraps the text.
            ///
            /// # Errors
            /// [`InvalidValue`] when it is empty, longer than 255 bytes, or holds a control character.
            pub fn new(text: impl Into<Cow<'static, str>>) -> Result<Self, InvalidValue> {
                checked_name($field, text.into()).map(Self)
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

name_type!(
    /// The name of a queue: 1 to 255 bytes, no control characters.
    QueueName, "queue"
);
name_type!(
    /// The business identity of an instance: signals address it, inserts are deduplicated on it (rule ID-1).
    CorrelationKey, "correlation key"
);
name_type!(
    /// The name of a signal: 1 to 255 bytes, no control characters.
    SignalName, "signal name"
);
name_type!(
    /// What makes a second delivery of a signal to the same instance do nothing (rule SIG-1).
    DeduplicationKey, "deduplication key"
);

name_type!(
    /// What holds a step back while another one with the same key runs (rules LIM-1, LIM-2): one at a time, or, when a gate
    /// of the name before the first `:` is configured, as many as that allows.
    ConcurrencyKey, "concurrency key"
);
name_type!(
    /// The bucket that a step takes tokens from when it starts (rule LIM-3): the name of a rate limit, and after the
    /// first `:` whose share it is.
    RateKey, "rate limit key"
);

impl ConcurrencyKey {
    /// The name of the gate that it belongs to, if one is configured: the part before the first `:`.
    #[must_use]
    pub fn limit_name(&self) -> &str {
        before_colon(&self.0)
    }
}

impl RateKey {
    /// The name of its rate limit: the part before the first `:`.
    #[must_use]
    pub fn limit_name(&self) -> &str {
        before_colon(&self.0)
    }
}

fn before_colon(key: &str) -> &str {
    key.split_once(':').map_or(key, |(name, _)| name)
}

/// The name of a gate or a rate limit: 1 to 255 bytes, no control characters, no `:`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitName(Cow<'static, str>);

impl LimitName {
    /// Checks and wraps the text.
    ///
    /// # Errors
    /// [`InvalidValue`] when it is empty, longer than 255 bytes, or holds a control character or a `:`.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Result<Self, InvalidValue> {
        let name = checked_name("limit name", text.into())?;
        if name.contains(':') {
            return Err(InvalidValue::ColonInLimitName {
                value: name.into_owned(),
            });
        }
        Ok(Self(name))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

pub(super) fn checked_name(
    field: &'static str,
    name: Cow<'static, str>,
) -> Result<Cow<'static, str>, InvalidValue> {
    if name.is_empty() {
        return Err(InvalidValue::Empty { field });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(InvalidValue::TooLong {
            field,
            bytes: name.len(),
            limit: MAX_NAME_BYTES,
        });
    }
    if name.chars().any(char::is_control) {
        return Err(InvalidValue::ControlCharacter {
            field,
            value: name.escape_debug().to_string(),
        });
    }
    Ok(name)
}
