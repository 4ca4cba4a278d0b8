//! Waiting for signals.

use std::borrow::Cow;
use std::time::Duration;

use super::Outcome;
use super::limits::{LimitOptions, limit_options};
use crate::error::EncodeError;
use crate::machine::{Machine, StepResult};
use crate::types::SignalName;

/// Waits for a signal of this name, then runs `step` in the new state. The attempt goes back to 0.
///
/// The wait holds nothing: no worker, no slot, no connection. A signal that came before wakes it at once, unless this
/// step was already given it as awaited: waiting again collects what comes, one after the other, and deletes none
/// (rules SIG-2, SIG-3). The step reads it with [`Context::signal`](crate::Context::signal).
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn await_signal<M: Machine>(name: impl Into<Cow<'static, str>>, step: M::Step, state: M) -> Await<M> {
    await_signals([name], step, state)
}

/// Waits for a signal of any of these names, then runs `step` in the new state; see [`await_signal`].
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn await_signals<M: Machine, N: Into<Cow<'static, str>>>(
    names: impl IntoIterator<Item = N>,
    step: M::Step,
    state: M,
) -> Await<M> {
    Await {
        names: names.into_iter().map(Into::into).collect(),
        step,
        state,
        timeout: None,
        limits: LimitOptions::default(),
    }
}

/// See [`await_signal`] and [`await_signals`].
pub struct Await<M: Machine> {
    names: Vec<Cow<'static, str>>,
    pub(crate) step: M::Step,
    pub(crate) state: M,
    pub(crate) timeout: Option<Duration>,
    pub(crate) limits: LimitOptions,
}

limit_options!(Await);

impl<M: Machine> Await<M> {
    /// Runs the step at the latest this long from now, at most 100 years; then
    /// [`Context::deadline_fired`](crate::Context::deadline_fired) says so, and the attempt is 0 as ever (rule
    /// SIG-4). Default: waits for ever.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The outcome, as a step returns it.
    ///
    /// # Errors
    /// Never; the `Result` is what a step returns. Without a name, with one that is out of range, or with a timeout
    /// that is too long, it goes to the error handler.
    pub fn ok(self) -> StepResult<M> {
        Ok(Outcome::Await(self))
    }

    /// The names, checked; each once.
    pub(crate) fn signals(&mut self) -> Result<Vec<SignalName>, EncodeError> {
        let mut signals = Vec::new();
        for name in std::mem::take(&mut self.names) {
            let name = SignalName::new(name)?;
            if !signals.contains(&name) {
                signals.push(name);
            }
        }
        if signals.is_empty() {
            return Err(EncodeError::NoSignals);
        }
        Ok(signals)
    }
}
