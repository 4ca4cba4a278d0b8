//! What holds the step that an outcome leads to (rule LIM-3).

use std::borrow::Cow;

use crate::error::InvalidValue;
use crate::store::{Limits, RateDemand};
use crate::types::{ConcurrencyKey, RateKey};

/// What a step said of the limits of the next one, as it said it.
#[derive(Debug, Default)]
pub(crate) struct LimitOptions {
    pub(crate) concurrency: KeyOption,
    pub(crate) rate: Option<Cow<'static, str>>,
    pub(crate) weight: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) enum KeyOption {
    #[default]
    Keep,
    Set(Cow<'static, str>),
    Clear,
}

impl LimitOptions {
    pub(crate) fn checked(self) -> Result<LimitChange, InvalidValue> {
        Ok(LimitChange {
            concurrency: match self.concurrency {
                KeyOption::Keep => KeyChange::Keep,
                KeyOption::Set(key) => KeyChange::Set(ConcurrencyKey::new(key)?),
                KeyOption::Clear => KeyChange::Clear,
            },
            rate: checked_rate(self.rate, self.weight)?,
        })
    }
}

/// A rate limit and a weight that can be stored. Whether the limit is there is known to the store alone.
pub(crate) fn checked_rate(
    key: Option<Cow<'static, str>>,
    weight: Option<u32>,
) -> Result<Option<RateDemand>, InvalidValue> {
    match (key, weight) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(InvalidValue::WeightWithoutRateLimit),
        (Some(_), Some(0)) => Err(InvalidValue::Zero { field: "the weight" }),
        (Some(key), weight) => Ok(Some(RateDemand {
            key: RateKey::new(key)?,
            weight: weight.unwrap_or(1),
        })),
    }
}

/// What becomes of the limits of an instance that goes on: the key is kept until it is said, a rate limit is for one
/// step.
#[derive(Clone, Debug)]
pub(crate) struct LimitChange {
    pub(crate) concurrency: KeyChange,
    pub(crate) rate: Option<RateDemand>,
}

#[derive(Clone, Debug)]
pub(crate) enum KeyChange {
    Keep,
    Set(ConcurrencyKey),
    Clear,
}

impl LimitChange {
    /// The new limits, if they differ.
    pub(crate) fn of(self, before: &Limits) -> Option<Limits> {
        let after = Limits {
            concurrency: match self.concurrency {
                KeyChange::Keep => before.concurrency.clone(),
                KeyChange::Set(key) => Some(key),
                KeyChange::Clear => None,
            },
            rate: self.rate,
        };
        (after != *before).then_some(after)
    }
}

/// The options of an outcome that leads to another step.
macro_rules! limit_options {
    ($outcome:ident) => {
        impl<M: $crate::machine::Machine> $outcome<M> {
            /// Only one step with this key runs at a time, in the whole cluster; or, when a gate of the name before the
            /// first `:` is configured, as many as it allows (rules LIM-1, LIM-2). The key stays with the instance
            /// until another outcome says otherwise.
            #[must_use]
            pub fn concurrency_key(mut self, key: impl Into<std::borrow::Cow<'static, str>>) -> Self {
                self.limits.concurrency = $crate::outcome::limits::KeyOption::Set(key.into());
                self
            }

            /// The instance gives up its concurrency key.
            #[must_use]
            pub fn without_concurrency_key(mut self) -> Self {
                self.limits.concurrency = $crate::outcome::limits::KeyOption::Clear;
                self
            }

            /// The next step starts when this rate limit has a token for it: `name` or `name:partition` (rule LIM-3).
            /// It is for that step and its retries; the outcome after it clears it.
            #[must_use]
            pub fn rate_limit(mut self, key: impl Into<std::borrow::Cow<'static, str>>) -> Self {
                self.limits.rate = Some(key.into());
                self
            }

            /// How many tokens the next step takes; default 1. Not without [`rate_limit`](Self::rate_limit), and not
            /// more than its burst.
            #[must_use]
            pub fn weight(mut self, tokens: u32) -> Self {
                self.limits.weight = Some(tokens);
                self
            }
        }
    };
}

pub(crate) use limit_options;
