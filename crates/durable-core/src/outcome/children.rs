//! Inserting children and waiting for them.

use std::time::Duration;

use super::Outcome;
use super::limits::{LimitOptions, limit_options};
use crate::error::EncodeError;
use crate::insert::Insert;
use crate::machine::{Machine, StepResult};
use crate::store::NewInstance;

/// Inserts children, waits until they are terminal, then runs `step` in the new state. The attempt goes back to 0.
///
/// The inserts and the wait are one commit: there is no moment with some of the children, or with children that
/// nobody waits for (rule CHILD-1). A child whose correlation key is taken is not inserted, and not waited for; when
/// nobody is left to wait for, the step runs at once. The step reads how they ended with
/// [`Context::children`](crate::Context::children); what a failed child means is for it to say (rule CHILD-2).
///
/// ```
/// # use durable_core::{Context, Insert, Job, JobError, Machine, StepResult, done, schedule_children};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct Resize { image: u32 }
/// # impl Job for Resize {
/// #     const NAME: &'static str = "resize";
/// #     type Output = u64;
/// #     async fn perform(&self, _: &Context) -> Result<u64, JobError> { Ok(0) }
/// # }
/// # #[derive(Serialize, Deserialize)]
/// # enum Step { Split, Sum }
/// # #[derive(Serialize, Deserialize)]
/// # struct Album { images: Vec<u32> }
/// # impl Machine for Album {
/// # const NAME: &'static str = "album";
/// # type Step = Step;
/// # type Result = u64;
/// # fn first_step() -> Step { Step::Split }
/// async fn step(self, step: Step, context: &Context) -> StepResult<Self> {
///     match step {
///         Step::Split => {
///             let jobs: Vec<_> = self.images.iter().map(|image| Insert::job(Resize { image: *image })).collect();
///             schedule_children(Step::Sum, self).children(jobs).ok()
///         }
///         Step::Sum => {
///             let mut bytes = 0;
///             for child in context.children() {
///                 bytes += child.done::<u64>()?;
///             }
///             done(bytes).ok()
///         }
///     }
/// }
/// # }
/// ```
#[must_use = "an outcome does nothing until the step returns it: end with .ok()"]
pub fn schedule_children<M: Machine>(step: M::Step, state: M) -> ScheduleChildren<M> {
    ScheduleChildren {
        step,
        state,
        children: Ok(Vec::new()),
        needed: None,
        timeout: None,
        limits: LimitOptions::default(),
    }
}

/// See [`schedule_children`].
pub struct ScheduleChildren<M: Machine> {
    pub(crate) step: M::Step,
    pub(crate) state: M,
    /// Encoded as they come, so that they may be of different machines; or what was wrong with the first that has a
    /// fault.
    pub(crate) children: Result<Vec<NewInstance>, EncodeError>,
    pub(crate) needed: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) limits: LimitOptions,
}

limit_options!(ScheduleChildren);

impl<M: Machine> ScheduleChildren<M> {
    /// One more child, of any machine or job.
    #[must_use]
    pub fn child<R>(mut self, child: Insert<R>) -> Self {
        if let Ok(children) = &mut self.children {
            match child.encode() {
                Ok(child) => children.push(child),
                Err(source) => {
                    self.children = Err(EncodeError::Child {
                        index: children.len(),
                        source: Box::new(source),
                    });
                }
            }
        }
        self
    }

    /// More children, all of one machine or job. Call it again for those of another.
    #[must_use]
    pub fn children<R>(self, children: impl IntoIterator<Item = Insert<R>>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    /// Waits only until this many of them are terminal, done or not; at least 1. The others go on, and count towards
    /// no later wait. Default: all of them.
    #[must_use]
    pub fn first(mut self, needed: u32) -> Self {
        self.needed = Some(needed);
        self
    }

    /// Runs the step at the latest this long from now, at most 100 years; then
    /// [`Context::deadline_fired`](crate::Context::deadline_fired) says so, and children that are not terminal go on.
    /// Default: waits for ever.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The outcome, as a step returns it.
    ///
    /// # Errors
    /// Never; the `Result` is what a step returns. With a child that cannot be inserted, with `first(0)`, or with a
    /// timeout that is too long, it goes to the error handler.
    pub fn ok(self) -> StepResult<M> {
        Ok(Outcome::ScheduleChildren(self))
    }
}
