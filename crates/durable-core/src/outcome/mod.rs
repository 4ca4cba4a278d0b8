//! What a step says comes next. Outcomes read like sentences: `next(Step::Ship, self).after(HOUR).ok()`.
//!
//! Each outcome is a type of its own, with only the options that mean something on it; `ok()`
//! turns it into the [`Outcome`] that a step returns.

mod children;
pub(crate) mod limits;
mod transaction;
mod wait;

use std::time::Duration;

use limits::{LimitOptions, limit_options};

pub use children::{ScheduleChildren, schedule_children};
pub use transaction::{WithTransaction, with_transaction};
pub use wait::{Await, await_signal, await_signals};

use crate::error::Failure;
use crate::machine::{Machine, StepResult};

/// What a step says comes next.
#[non_exhaustive]
pub enum Outcome<M: Machine> {
    /// Run another step.
    Next(Next<M>),
    /// Run the same step again.
    Retry(Retry<M>),
    /// Wait for a signal, then run another step.
    Await(Await<M>),
    /// Insert children, wait for them, then run another step.
    ScheduleChildren(ScheduleChildren<M>),
    /// Finished, with a result.
    Done(Done<M::Result>),
    /// Finished, failed.
    Stop(Stop),
    /// Finished, cancelled.
    Cancel(Cancel),
    /// Any of the others, committed in a transaction that the step has opened.
    WithTransaction(WithTransaction<M>),
}

/// Goes on with `step`, in the new state. The attempt goes back to 0.
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn next<M: Machine>(step: M::Step, state: M) -> Next<M> {
    Next {
        step,
        state,
        delay: Duration::ZERO,
        ahead: M::RUN_AHEAD,
        limits: LimitOptions::default(),
    }
}

/// Runs the same step again, in the new state, with attempt + 1; at once unless [`after`](Retry::after) says
/// otherwise.
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn retry<M: Machine>(state: M) -> Retry<M> {
    Retry {
        state,
        delay: Duration::ZERO,
        failure: None,
    }
}

/// Finishes the instance with a result.
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn done<R>(result: R) -> Done<R> {
    Done { result }
}

/// Finishes the instance as failed, for a reason.
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn stop(reason: impl Into<String>) -> Stop {
    Stop {
        reason: reason.into(),
    }
}

/// Finishes the instance as cancelled, for a reason.
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn cancel(reason: impl Into<String>) -> Cancel {
    Cancel {
        reason: reason.into(),
    }
}

/// See [`next`].
pub struct Next<M: Machine> {
    pub(crate) step: M::Step,
    pub(crate) state: M,
    pub(crate) delay: Duration,
    pub(crate) ahead: bool,
    pub(crate) limits: LimitOptions,
}

limit_options!(Next);

impl<M: Machine> Next<M> {
    /// Runs the step in the same worker as soon as this outcome is committed, without the queue: a chain of short
    /// steps goes faster, and other work of the queue waits meanwhile (rule RUN-1). How far a worker runs ahead is
    /// bounded by [`EngineBuilder::run_ahead_limit`](crate::EngineBuilder::run_ahead_limit); past it, and with a
    /// delay, the step goes through the queue. Default: [`Machine::RUN_AHEAD`].
    #[must_use]
    pub fn ahead(mut self) -> Self {
        self.ahead = true;
        self
    }

    /// Runs the step no sooner than this from now; at most 100 years.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The outcome, as a step returns it.
    ///
    /// # Errors
    /// Never; the `Result` is what a step returns.
    pub fn ok(self) -> StepResult<M> {
        Ok(Outcome::Next(self))
    }
}

/// See [`retry`].
pub struct Retry<M: Machine> {
    pub(crate) state: M,
    pub(crate) delay: Duration,
    pub(crate) failure: Option<Failure>,
}

impl<M: Machine> Retry<M> {
    /// Runs the step no sooner than this from now; at most 100 years.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Keeps with the instance, for people, why it is tried again: NUL characters are replaced, and the message is cut
    /// at 8 KiB.
    #[must_use]
    pub fn because(mut self, failure: Failure) -> Self {
        // Its fields are public, so it may hold what no store can.
        self.failure = Some(Failure::new(failure.kind, failure.message));
        self
    }

    /// The outcome, as a step returns it.
    ///
    /// # Errors
    /// Never; the `Result` is what a step returns.
    pub fn ok(self) -> StepResult<M> {
        Ok(Outcome::Retry(self))
    }
}

/// See [`done`].
pub struct Done<R> {
    pub(crate) result: R,
}

impl<R> Done<R> {
    /// The outcome, as a step returns it.
    ///
    /// # Errors
    /// Never; the `Result` is what a step returns.
    pub fn ok<M: Machine<Result = R>>(self) -> StepResult<M> {
        Ok(Outcome::Done(self))
    }
}

/// See [`stop`].
pub struct Stop {
    pub(crate) reason: String,
}

impl Stop {
    /// The outcome, as a step returns it.
    ///
    /// # Errors
    /// Never; the `Result` is what a step returns.
    pub fn ok<M: Machine>(self) -> StepResult<M> {
        Ok(Outcome::Stop(self))
    }
}

/// See [`cancel`].
pub struct Cancel {
    pub(crate) reason: String,
}

impl Cancel {
    /// The outcome, as a step returns it.
    ///
    /// # Errors
    /// Never; the `Result` is what a step returns.
    pub fn ok<M: Machine>(self) -> StepResult<M> {
        Ok(Outcome::Cancel(self))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::context::Context;
    use crate::error::FailureKind;
    use crate::types::Json;

    #[derive(Serialize, Deserialize)]
    struct Nothing;

    impl Machine for Nothing {
        const NAME: &'static str = "nothing";
        type Step = ();
        type Result = ();

        fn first_step() {}

        async fn step(self, (): (), _context: &Context) -> StepResult<Self> {
            done(()).ok()
        }
    }

    #[test]
    fn a_failure_made_by_hand_is_storable_when_it_is_kept() {
        // contract: FSM-4, OUT-2
        let failure = Failure {
            kind: FailureKind::Error,
            message: "a\0b".to_owned(),
        };
        assert!(Json::encode(&failure).is_err(), "as it is, no store takes it");
        let kept = retry(Nothing).because(failure).failure.expect("kept");
        assert!(Json::encode(&kept).is_ok());
    }
}
