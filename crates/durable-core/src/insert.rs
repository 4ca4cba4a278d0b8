//! What a user says about a new instance.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use crate::error::{EncodeError, InsertError, InvalidValue};
use crate::job::Job;
use crate::machine::{Machine, machine_key, step_name};
use crate::outcome::limits::checked_rate;
use crate::store::{Eligible, Limits, NewInstance};
use crate::types::{
    ConcurrencyKey, CorrelationKey, Json, MAX_DURATION, MachineKey, QueueName, Scope, checked_duration,
};

/// A new instance of a machine or job: its state, and how it is scheduled.
///
/// Values out of range are refused by the insert, before anything is written, with an error that names the
/// field.
///
/// ```
/// # use durable_core::{Context, Insert, Job, JobError};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct SendReceipt { order: u64 }
/// # impl Job for SendReceipt {
/// #     const NAME: &'static str = "send_receipt";
/// #     type Output = ();
/// #     async fn perform(&self, _: &Context) -> Result<(), JobError> { Ok(()) }
/// # }
/// use std::time::Duration;
///
/// let insert = Insert::job(SendReceipt { order: 7 })
///     .queue("mail")
///     .priority(10)
///     .run_in(Duration::from_secs(60))
///     .correlation_key("receipt-7");
/// ```
#[derive(Debug)]
#[must_use = "it is inserted by Client::insert"]
pub struct Insert<R> {
    machine: Result<MachineKey, InvalidValue>,
    step: Result<String, EncodeError>,
    state: Result<Json, EncodeError>,
    queue: Cow<'static, str>,
    priority: i16,
    eligible: Eligible,
    correlation_key: Option<Cow<'static, str>>,
    scope: Option<Scope>,
    concurrency_key: Option<Cow<'static, str>>,
    rate_limit: Option<Cow<'static, str>>,
    weight: Option<u32>,
    result: PhantomData<fn() -> R>,
}

/// The name of the only step of every job.
pub(crate) const PERFORM: &str = "perform";

/// The priority of new instances. Lower runs first.
pub const DEFAULT_PRIORITY: i16 = 100;

impl<R> Insert<R> {
    /// A new instance of a machine, from its first state.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the state is handed over: it lives in the store now"
    )]
    pub fn machine<M: Machine<Result = R>>(state: M) -> Self {
        Self::of(
            machine_key::<M>(),
            step_name(&M::first_step()),
            Json::encode(&state),
            M::QUEUE,
        )
    }

    /// A new job.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the state is handed over: it lives in the store now"
    )]
    pub fn job<J: Job<Output = R>>(job: J) -> Self {
        Self::of(
            MachineKey::new(J::NAME, J::VERSION),
            Ok(PERFORM.to_owned()),
            Json::encode(&job),
            J::QUEUE,
        )
    }

    fn of(
        machine: Result<MachineKey, InvalidValue>,
        step: Result<String, EncodeError>,
        state: Result<Json, EncodeError>,
        queue: &'static str,
    ) -> Self {
        Self {
            machine,
            step,
            state,
            queue: Cow::Borrowed(queue),
            priority: DEFAULT_PRIORITY,
            eligible: Eligible::In(Duration::ZERO),
            correlation_key: None,
            scope: None,
            concurrency_key: None,
            rate_limit: None,
            weight: None,
            result: PhantomData,
        }
    }

    /// The queue; default: that of the machine or job.
    pub fn queue(mut self, queue: impl Into<Cow<'static, str>>) -> Self {
        self.queue = queue.into();
        self
    }

    /// The priority; lower runs first. Default 100.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Runs no sooner than this after the insert, by the store's clock; at most 100 years.
    pub fn run_in(mut self, delay: Duration) -> Self {
        self.eligible = Eligible::In(delay);
        self
    }

    /// Runs no sooner than this instant; at most 100 years away. An instant that has passed means now.
    pub fn run_at(mut self, instant: SystemTime) -> Self {
        self.eligible = Eligible::At(instant);
        self
    }

    /// The business identity. While another instance holds the key, nothing is inserted and the answer is
    /// [`Inserted::Duplicate`](crate::Inserted::Duplicate).
    pub fn correlation_key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.correlation_key = Some(key.into());
        self
    }

    /// The statuses in which the key counts as taken; default: all non-terminal.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Only one instance with this key executes at a time, in the whole cluster; or, when a gate of the name before the
    /// first `:` is configured, as many as it allows (rules LIM-1, LIM-2). The instance keeps the key until an outcome
    /// says otherwise.
    pub fn concurrency_key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.concurrency_key = Some(key.into());
        self
    }

    /// The first step starts when this rate limit has a token for it: `name` or `name:partition` (rule LIM-3). The name
    /// must be configured.
    pub fn rate_limit(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.rate_limit = Some(key.into());
        self
    }

    /// How many tokens the first step takes; default 1. Not without [`rate_limit`](Self::rate_limit), and not more than
    /// its burst.
    pub fn weight(mut self, tokens: u32) -> Self {
        self.weight = Some(tokens);
        self
    }

    /// Checks everything and gives the form that a store takes. [`Client::insert`](crate::Client::insert)
    /// calls it.
    ///
    /// # Errors
    /// [`InsertError`], naming the first field that is out of range, or why the state cannot be stored.
    pub fn encode(self) -> Result<NewInstance, InsertError> {
        let machine = self.machine?;
        let refused = |source| InsertError::State {
            machine: machine.clone(),
            source,
        };
        let step = self.step.map_err(refused)?;
        let state = self.state.map_err(refused)?;
        let correlation = match (self.correlation_key, self.scope) {
            (Some(key), scope) => Some((CorrelationKey::new(key)?, scope.unwrap_or_default())),
            (None, Some(_)) => return Err(InvalidValue::ScopeWithoutKey.into()),
            (None, None) => None,
        };
        Ok(NewInstance {
            queue: QueueName::new(self.queue)?,
            priority: self.priority,
            eligible: checked_eligible(self.eligible)?,
            machine,
            step,
            state,
            correlation,
            limits: Limits {
                concurrency: self.concurrency_key.map(ConcurrencyKey::new).transpose()?,
                rate: checked_rate(self.rate_limit, self.weight)?,
            },
        })
    }
}

fn checked_eligible(eligible: Eligible) -> Result<Eligible, InvalidValue> {
    match eligible {
        Eligible::In(delay) => checked_duration("run_in", delay).map(Eligible::In),
        Eligible::At(instant) => match instant.duration_since(SystemTime::now()) {
            Ok(ahead) if ahead > MAX_DURATION => Err(InvalidValue::TooFar {
                field: "run_at",
                seconds: ahead.as_secs(),
            }),
            Ok(_) => Ok(eligible),
            Err(_past) => Ok(Eligible::In(Duration::ZERO)),
        },
    }
}
