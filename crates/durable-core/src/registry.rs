//! Which machines a worker knows, and how a claimed instance is run by its type (rules FSM-1, FSM-4, FSM-5).

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::context::{Context, StepTokens};
use crate::error::{EncodeError, Failure, FailureKind, InvalidValue};
use crate::job::{Job, JobError, exponential_backoff};
use crate::machine::{Machine, StepResult, machine_key, step_from_name, step_name};
use crate::outcome::Outcome;
use crate::outcome::limits::LimitChange;
use crate::panic::run_guarded;
use crate::store::{ClaimedInstance, OutcomeTransaction, Transition};
use crate::types::{Json, MachineKey, checked_duration};

/// A claimed instance and what its step may know.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) instance: Arc<ClaimedInstance>,
    pub(crate) context: Context,
}

impl Work {
    pub(crate) fn new(instance: ClaimedInstance, machine: MachineKey, tokens: StepTokens) -> Arc<Self> {
        let instance = Arc::new(instance);
        let context = Context {
            instance: Arc::clone(&instance),
            machine,
            tokens,
        };
        Arc::new(Self { instance, context })
    }
}

/// How a step ended.
pub(crate) struct Ran {
    pub(crate) transition: Transition,
    /// What the transition is committed in, if the step has opened a transaction of its own (rule OPS-8).
    pub(crate) transaction: Option<Box<dyn OutcomeTransaction>>,
    /// What becomes of the limits, when it goes on; `None` keeps them.
    pub(crate) limits: Option<LimitChange>,
}

impl From<Transition> for Ran {
    fn from(transition: Transition) -> Self {
        Self {
            transition,
            transaction: None,
            limits: None,
        }
    }
}

type Running = Pin<Box<dyn Future<Output = Ran> + Send>>;

/// A machine with its types erased.
pub(crate) trait Handler: Send + Sync {
    /// Runs the step, and the error handler if the step fails. Never panics.
    fn run(&self, work: Arc<Work>) -> Running;

    /// Runs the error handler alone: the outcome of the step was refused.
    fn handle(&self, work: Arc<Work>, failure: Failure) -> Running;
}

/// The machines that a worker knows, in a fixed order: a claim names them by index.
#[derive(Default)]
pub(crate) struct Registry {
    handlers: Vec<(MachineKey, Arc<dyn Handler>)>,
    faults: Vec<String>,
}

impl Registry {
    pub(crate) fn add_machine<M: Machine>(&mut self) {
        if let Err(error) = step_name(&M::first_step()) {
            self.faults.push(format!("machine {}: {error}", M::NAME));
        }
        self.add(machine_key::<M>(), Arc::new(MachineHandler::<M>(PhantomData)));
    }

    pub(crate) fn add_job<J: Job>(&mut self) {
        if J::MAX_ATTEMPTS == 0 {
            self.faults.push(format!(
                "job {}: MAX_ATTEMPTS is 0; it must be at least 1",
                J::NAME
            ));
        }
        self.add(
            MachineKey::new(J::NAME, J::VERSION),
            Arc::new(JobHandler::<J>(PhantomData)),
        );
    }

    fn add(&mut self, key: Result<MachineKey, InvalidValue>, handler: Arc<dyn Handler>) {
        match key {
            Err(error) => self.faults.push(format!("machine: {error}")),
            Ok(key) if self.handlers.iter().any(|(known, _)| *known == key) => {
                self.faults.push(format!("machine {key} is registered twice"));
            }
            Ok(key) => self.handlers.push((key, handler)),
        }
    }

    /// What is wrong with the registrations, for the check of the whole configuration.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }

    pub(crate) fn keys(&self) -> Arc<[MachineKey]> {
        self.handlers.iter().map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&(MachineKey, Arc<dyn Handler>)> {
        self.handlers.get(index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }
}

/// How often an instance whose state or step does not fit its types is tried before it fails: a rolling
/// deploy may bring the worker that can read it.
const DECODE_ATTEMPTS: u32 = 5;

/// What becomes of an instance that cannot be decoded: it backs off, then fails, its raw JSON kept.
fn undecodable(work: &Work, what: &str, error: &serde_json::Error) -> Transition {
    let machine = &work.context.machine;
    let failure = Failure::new(
        FailureKind::Decoding,
        format!("the stored {what} does not fit the types of {machine}: {error}; it is kept as it is"),
    );
    if work.instance.attempt + 1 >= DECODE_ATTEMPTS {
        return Transition::Failed { failure };
    }
    let delay = exponential_backoff(work.instance.attempt);
    Transition::Retry {
        state: None,
        delay,
        failure: Some(failure),
    }
}

fn encoding_failure(error: &EncodeError) -> Failure {
    Failure::new(
        FailureKind::Encoding,
        format!("the outcome cannot be stored: {error}"),
    )
}

fn crash_failure(crashes: u32) -> Failure {
    let message =
        format!("the worker died, or lost its lease, while it ran this step, {crashes} times in a row");
    Failure::new(FailureKind::Crash, message)
}

struct MachineHandler<M>(PhantomData<fn() -> M>);

impl<M: Machine> Handler for MachineHandler<M> {
    fn run(&self, work: Arc<Work>) -> Running {
        Box::pin(async move {
            let crashes = work.instance.crashes;
            if crashes > M::MAX_CRASHES {
                // Even the error handler killed its worker.
                let failure = crash_failure(crashes);
                return Transition::Failed { failure }.into();
            }
            if crashes == M::MAX_CRASHES && crashes > 0 {
                return handle_error::<M>(&work, crash_failure(crashes)).await;
            }
            let (state, step) = match decode::<M>(&work) {
                Ok(decoded) => decoded,
                Err(transition) => return transition.into(),
            };
            let timeout = M::timeout(&step);
            let result = run_guarded(timeout, state.step(step, &work.context)).await;
            let failure = match flatten(result) {
                Ok(outcome) => match encode(outcome) {
                    Ok(ran) => return ran,
                    Err(error) => encoding_failure(&error),
                },
                Err(failure) => failure,
            };
            handle_error::<M>(&work, failure).await
        })
    }

    fn handle(&self, work: Arc<Work>, failure: Failure) -> Running {
        Box::pin(async move { handle_error::<M>(&work, failure).await })
    }
}

fn decode<M: Machine>(work: &Work) -> Result<(M, M::Step), Transition> {
    let state = work
        .instance
        .state
        .decode()
        .map_err(|error| undecodable(work, "state", &error))?;
    let step = step_from_name(&work.instance.step).map_err(|error| undecodable(work, "step", &error))?;
    Ok((state, step))
}

/// Asks the error handler. If it fails too, the instance fails with both reasons.
async fn handle_error<M: Machine>(work: &Work, failure: Failure) -> Ran {
    let (state, step) = match decode::<M>(work) {
        Ok(decoded) => decoded,
        Err(transition) => return transition.into(),
    };
    let timeout = M::timeout(&step);
    let handled = run_guarded(timeout, state.on_error(step, &failure, &work.context)).await;
    let second = match flatten(handled) {
        Ok(Outcome::Stop(stop)) if stop.reason == failure.message => {
            // The default handler: keep the kind of the failure that led here.
            return Transition::Failed { failure }.into();
        }
        Ok(Outcome::Retry(mut retry)) => {
            retry.failure.get_or_insert(failure.clone());
            encode(Outcome::Retry(retry)).map_err(|error| encoding_failure(&error))
        }
        Ok(outcome) => encode(outcome).map_err(|error| encoding_failure(&error)),
        Err(second) => Err(second),
    };
    second.unwrap_or_else(|second| {
        let text = format!(
            "{}; then the error handler failed: {}",
            failure.message, second.message
        );
        let failure = Failure::new(failure.kind, text);
        Transition::Failed { failure }.into()
    })
}

fn flatten<M: Machine>(result: Result<StepResult<M>, Failure>) -> Result<Outcome<M>, Failure> {
    result?.map_err(|error| Failure::from_error(&error))
}

fn encode<M: Machine>(outcome: Outcome<M>) -> Result<Ran, EncodeError> {
    let mut limits = None;
    let transition = match outcome {
        Outcome::WithTransaction(with) => {
            return Ok(Ran {
                transaction: Some(with.transaction),
                ..encode(*with.outcome)?
            });
        }
        Outcome::Next(next) => {
            limits = Some(next.limits.checked()?);
            let (step, state) = (step_name(&next.step)?, Json::encode(&next.state)?);
            if next.ahead && next.delay.is_zero() {
                Transition::Ahead { step, state }
            } else {
                Transition::Next {
                    step,
                    state,
                    delay: checked_duration("the delay of next", next.delay)?,
                }
            }
        }
        Outcome::Await(mut wait) => {
            let signals = wait.signals()?;
            limits = Some(wait.limits.checked()?);
            Transition::Await {
                signals,
                step: step_name(&wait.step)?,
                state: Json::encode(&wait.state)?,
                timeout: checked_timeout("the timeout of await_signals", wait.timeout)?,
            }
        }
        Outcome::ScheduleChildren(fan_out) => {
            limits = Some(fan_out.limits.checked()?);
            Transition::ScheduleChildren {
                step: step_name(&fan_out.step)?,
                state: Json::encode(&fan_out.state)?,
                children: fan_out.children?,
                needed: match fan_out.needed {
                    Some(0) => return Err(EncodeError::FirstZero),
                    needed => needed,
                },
                timeout: checked_timeout("the timeout of schedule_children", fan_out.timeout)?,
            }
        }
        Outcome::Retry(retry) => Transition::Retry {
            state: Some(Json::encode(&retry.state)?),
            delay: checked_duration("the delay of retry", retry.delay)?,
            failure: retry.failure,
        },
        Outcome::Done(done) => Transition::Done {
            result: Json::encode(&done.result)?,
        },
        Outcome::Stop(stop) => Transition::Failed {
            failure: Failure::new(FailureKind::Stopped, stop.reason),
        },
        Outcome::Cancel(cancel) => Transition::Cancelled {
            failure: Failure::new(FailureKind::Cancelled, cancel.reason),
        },
    };
    Ok(Ran {
        limits,
        ..transition.into()
    })
}

fn checked_timeout(field: &'static str, timeout: Option<Duration>) -> Result<Option<Duration>, InvalidValue> {
    timeout
        .map(|timeout| checked_duration(field, timeout))
        .transpose()
}

struct JobHandler<J>(PhantomData<fn() -> J>);

impl<J: Job> Handler for JobHandler<J> {
    fn run(&self, work: Arc<Work>) -> Running {
        Box::pin(async move { perform::<J>(&work).await.into() })
    }

    fn handle(&self, _work: Arc<Work>, failure: Failure) -> Running {
        Box::pin(async move { Transition::Failed { failure }.into() })
    }
}

async fn perform<J: Job>(work: &Work) -> Transition {
    let attempt = work.instance.attempt;
    if attempt >= J::MAX_ATTEMPTS {
        return Transition::Failed {
            failure: crash_failure(work.instance.crashes),
        };
    }
    let job: J = match work.instance.state.decode() {
        Ok(job) => job,
        Err(error) => return undecodable(work, "state", &error),
    };
    let result = run_guarded(J::timeout(), job.perform(&work.context)).await;
    let (delay, failure) = match result {
        Ok(Ok(output)) => {
            return match Json::encode(&output) {
                Ok(result) => Transition::Done { result },
                // Running it again would do the work again, and end the same.
                Err(error) => Transition::Failed {
                    failure: encoding_failure(&error),
                },
            };
        }
        Ok(Err(JobError::Cancel(reason))) => {
            let failure = Failure::new(FailureKind::Cancelled, reason);
            return Transition::Cancelled { failure };
        }
        Ok(Err(JobError::Retry(error))) => (None, Failure::from_error(&error)),
        Ok(Err(JobError::RetryAfter(delay, error))) => (Some(delay), Failure::from_error(&error)),
        Err(failure) => (None, failure),
    };
    retry_job::<J>(attempt, delay, failure)
}

fn retry_job<J: Job>(attempt: u32, delay: Option<Duration>, failure: Failure) -> Transition {
    if attempt + 1 >= J::MAX_ATTEMPTS {
        return Transition::Failed { failure };
    }
    let delay = delay
        .unwrap_or_else(|| J::backoff(attempt))
        .min(crate::types::MAX_DURATION);
    Transition::Retry {
        state: None,
        delay,
        failure: Some(failure),
    }
}
