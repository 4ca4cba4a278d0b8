//! The one-step form of a machine: a job.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::chance;
use crate::context::Context;
use crate::error::Error;

/// A job: one step, tried until it succeeds, is cancelled, or has used up its attempts.
///
/// ```
/// use durable_core::{Context, Job, JobError};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct SendReceipt {
///     order: u64,
/// }
///
/// impl Job for SendReceipt {
///     const NAME: &'static str = "send_receipt";
///     type Output = ();
///
///     async fn perform(&self, _context: &Context) -> Result<(), JobError> {
///         if self.order == 0 {
///             return Err(JobError::cancel("there is no order 0"));
///         }
///         let _number: u32 = "7".parse()?; // any error is retried
///         Ok(())
///     }
/// }
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// The name under which instances are stored: 1 to 255 bytes. Never change it while instances live.
    const NAME: &'static str;

    /// The version; see [`Machine::VERSION`](crate::Machine::VERSION). Default 1.
    const VERSION: u16 = 1;

    /// The queue of new instances. Default `"default"`.
    const QUEUE: &'static str = "default";

    /// How often the job is tried before it fails for good, at least 1. Crashes of the worker count too.
    /// Default 20.
    const MAX_ATTEMPTS: u32 = 20;

    /// What the job returns; often `()`.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Does the work. It may run more than once, so it should be safe to repeat.
    ///
    /// # Cancel safety
    /// See [`Machine::step`](crate::Machine::step).
    fn perform(&self, context: &Context) -> impl Future<Output = Result<Self::Output, JobError>> + Send;

    /// The longest that one try may take; `None`, the default, sets no limit.
    #[must_use]
    fn timeout() -> Option<Duration> {
        None
    }

    /// How long to wait after try number `attempt` (0 is the first) failed. Default: from 1 s, doubled each
    /// time, at most 5 min, each with up to a quarter of jitter taken off.
    #[must_use]
    fn backoff(attempt: u32) -> Duration {
        exponential_backoff(attempt)
    }
}

/// The first delay of the default backoff.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest delay of the default backoff.
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// The default backoff of jobs: 1 s doubled with each attempt, at most 5 min, less up to a quarter of jitter,
/// so that jobs that failed together do not come back together.
#[must_use]
pub fn exponential_backoff(attempt: u32) -> Duration {
    let doubled = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(attempt));
    let capped = doubled.min(LONGEST_BACKOFF);
    capped.mul_f64(chance::draw(0.75..=1.0))
}

/// How a job fails.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError {
    /// Try again after the backoff, if attempts are left. Every error turns into this one through `?`.
    Retry(Error),
    /// Try again after this delay instead of the backoff, if attempts are left.
    RetryAfter(Duration, Error),
    /// Final at once: the instance is cancelled.
    Cancel(String),
}

impl JobError {
    /// A cancellation, final at once.
    pub fn cancel(reason: impl Into<String>) -> Self {
        Self::Cancel(reason.into())
    }

    /// A retry after a delay of your own; a server said Retry-After, say.
    pub fn retry_after(delay: Duration, error: impl Into<Error>) -> Self {
        Self::RetryAfter(delay, error.into())
    }
}

impl<E: Into<Error>> From<E> for JobError {
    fn from(error: E) -> Self {
        Self::Retry(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_is_capped_and_has_jitter() {
        // contract: FSM-2
        for attempt in 0..40 {
            let full = Duration::from_secs(1 << attempt.min(9)).min(LONGEST_BACKOFF);
            for _ in 0..20 {
                let delay = exponential_backoff(attempt);
                assert!(
                    delay <= full && delay >= full.mul_f64(0.74),
                    "attempt {attempt}: {delay:?}"
                );
            }
        }
        let delays: std::collections::HashSet<_> = (0..20).map(|_| exponential_backoff(5)).collect();
        assert!(delays.len() > 1, "jitter spreads what failed together");
    }
}
