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
