//! What a user writes: a durable state machine.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::error::InvalidValue;
use crate::error::{EncodeError, Error, Failure};
use crate::outcome::{Outcome, stop};
use crate::types::{MAX_NAME_BYTES, MachineKey};

/// A durable state machine: the type itself is the state.
///
/// The engine calls [`step`](Machine::step) with the stored state, commits the [`Outcome`] that it returns,
/// and only then runs what follows. A crash before the commit runs the whole step again, so a step should be
/// safe to repeat.
///
/// ```
/// use durable_core::{Context, Machine, StepResult, done, next};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Checkout {
///     order: u64,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// #[serde(rename_all = "snake_case")]
/// enum Step {
///     Charge,
///     Ship,
/// }
///
/// impl Machine for Checkout {
///     const NAME: &'static str = "checkout";
///     type Step = Step;
///     type Result = String;
///
///     fn first_step() -> Step {
///         Step::Charge
///     }
///
///     async fn step(self, step: Step, _context: &Context) -> StepResult<Self> {
///         match step {
///             Step::Charge => next(Step::Ship, self).ok(),
///             Step::Ship => done(format!("order {} shipped", self.order)).ok(),
///         }
///     }
/// }
/// ```
pub trait Machine: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// The name under which instances are stored: 1 to 255 bytes. Never change it while instances live.
    const NAME: &'static str;

    /// The version. An instance finishes on the version that it started on, so register the old version
    /// beside the new one until its instances are gone. Default 1.
    const VERSION: u16 = 1;

    /// The queue of new instances. Default `"default"`.
    const QUEUE: &'static str = "default";

    /// How often in a row a worker may die while it runs one step of one instance before the error handler
    /// is asked instead, so that a step that kills its process cannot loop for ever. Default 20.
    const MAX_CRASHES: u32 = 20;

    /// Whether every [`next`](crate::next) without a delay runs ahead: at once in the same worker, without the queue, as
    /// [`Next::ahead`](crate::Next::ahead) says for one. Default no.
    const RUN_AHEAD: bool = false;

    /// The steps: an enum without fields, stored by its serde name.
    type Step: Serialize + DeserializeOwned + Send + 'static;

    /// The result of a finished instance.
    type Result: Serialize + DeserializeOwned + Send + 'static;

    /// The step that a new instance starts with.
    fn first_step() -> Self::Step;

    /// Runs one step. `?` works on any error; an error goes to [`on_error`](Machine::on_error).
    ///
    /// # Cancel safety
    /// The future is dropped at an await point when the step exceeds its timeout, or when a shutdown has
    /// waited long enough. The step then runs again, or its error handler does.
    fn step(self, step: Self::Step, context: &Context) -> impl Future<Output = StepResult<Self>> + Send;

    /// The longest that a step may run; `None`, the default, sets no limit.
    #[must_use]
    fn timeout(_step: &Self::Step) -> Option<Duration> {
        None
    }

    /// Decides what follows a failed step: it returned an error, panicked, exceeded its timeout, killed its
    /// worker too often, or its outcome cannot be stored. `self` is the state that the step started from.
    /// Any outcome may be returned. Default: stop with the failure. If the handler itself fails, the
    /// instance fails.
    fn on_error(
        self,
        _step: Self::Step,
        failure: &Failure,
        _context: &Context,
    ) -> impl Future<Output = StepResult<Self>> + Send {
        let failure = failure.clone();
        async move { stop(failure.message).ok() }
    }
}

/// What a step returns.
pub type StepResult<M> = Result<Outcome<M>, Error>;

/// The stored name of a step.
pub(crate) fn step_name<S: Serialize>(step: &S) -> Result<String, EncodeError> {
    match serde_json::to_value(step).map_err(EncodeError::Serialize)? {
        serde_json::Value::String(name) if name.len() > MAX_NAME_BYTES => Err(EncodeError::TooLarge {
            bytes: name.len(),
            limit: MAX_NAME_BYTES,
        }),
        serde_json::Value::String(name) if name.contains('\0') => Err(EncodeError::NulCharacter),
        serde_json::Value::String(name) => Ok(name),
        other => Err(EncodeError::StepNotAName {
            found: other.to_string(),
        }),
    }
}

/// Decodes a stored step name.
pub(crate) fn step_from_name<S: DeserializeOwned>(name: &str) -> Result<S, serde_json::Error> {
    serde_json::from_value(serde_json::Value::String(name.to_owned()))
}

/// The key of a machine type.
pub(crate) fn machine_key<M: Machine>() -> Result<MachineKey, InvalidValue> {
    MachineKey::new(M::NAME, M::VERSION)
}
