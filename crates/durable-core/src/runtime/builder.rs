//! The options of an engine, checked whole before anything is done (rule OPS-7).

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::drain::Drain;
use super::engine::Engine;
use super::executor::RunAheadLimit;
use crate::error::StartError;
use crate::job::Job;
use crate::limiter::Limiter;
use crate::machine::Machine;
use crate::poke::Poking;
use crate::registry::Registry;
use crate::store::{Retention, Store};
use crate::types::{MAX_DURATION, QueueName};

/// A queue that an engine serves.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) name: Cow<'static, str>,
    pub(crate) concurrency: usize,
}

/// How many instances of one queue one engine runs at a time, unless told otherwise. A step holds no
/// connection, so this costs memory only.
const DEFAULT_CONCURRENCY: usize = 500;
/// The most that may be asked for: one claim takes up to this many rows.
const LARGEST_CONCURRENCY: usize = 10_000;

impl Queue {
    /// A queue with the default concurrency of 500.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            concurrency: DEFAULT_CONCURRENCY,
        }
    }

    /// How many instances this engine runs at a time: 1 to 10,000.
    #[must_use]
    pub const fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }
}

impl<N: Into<Cow<'static, str>>> From<N> for Queue {
    fn from(name: N) -> Self {
        Self::new(name)
    }
}

/// Builds an [`Engine`].
#[must_use = "an engine does nothing until start()"]
pub struct EngineBuilder {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) name: String,
    pub(crate) queues: Vec<Queue>,
    pub(crate) registry: Registry,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) shutdown_limit: Duration,
    pub(crate) retention: Retention,
    pub(crate) run_ahead: RunAheadLimit,
    pub(crate) reaper: bool,
    pub(crate) collector: bool,
    pub(crate) heartbeat_thread: bool,
    pub(crate) poking: Poking,
    pub(crate) limiter: Option<Arc<dyn Limiter>>,
}

/// The shortest lease: below it, a pause of the scheduler of the operating system looks like death.
const SHORTEST_LEASE: Duration = Duration::from_millis(200);

impl EngineBuilder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            name: "durable".to_owned(),
            queues: Vec::new(),
            registry: Registry::default(),
            lease: Duration::from_secs(8),
            poll: Duration::from_secs(1),
            shutdown_limit: Duration::from_secs(30),
            retention: Retention::default(),
            run_ahead: RunAheadLimit {
                steps: 50,
                time: Duration::from_secs(1),
            },
            reaper: true,
            collector: true,
            heartbeat_thread: true,
            poking: Poking::default(),
            limiter: None,
        }
    }

    /// The engine's name, for people; engines of one process on one store need different ones. Default
    /// `"durable"`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Serves a queue: a name, or a [`Queue`] with its concurrency. Without any, the engine only maintains.
    pub fn queue(mut self, queue: impl Into<Queue>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Runs instances of a machine.
    pub fn machine<M: Machine>(mut self) -> Self {
        self.registry.add_machine::<M>();
        self
    }

    /// Runs a job.
    pub fn job<J: Job>(mut self) -> Self {
        self.registry.add_job::<J>();
        self
    }

    /// How long a worker is trusted without a heartbeat: after a crash, its work runs elsewhere this much
    /// later, plus a second. It beats four times as often. How long a step may run is another matter: as long
    /// as it likes. Default 8 s, at least 200 ms.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often a queue without work is looked at, if nothing pokes; up to five times as long when it stays
    /// empty. Default 1 s.
    pub const fn poll_interval(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// How this engine hears of new work between polls, and tells others of it: nothing, what happens in its own process
    /// (the default), or a transport of the crate `durable-poke` or of your own (rule POKE-2).
    pub fn poke(mut self, poking: impl Into<Poking>) -> Self {
        self.poking = poking.into();
        self
    }

    /// Who counts gates and rate limits (rules LIM-2, LIM-9); default: nobody, and then steps that need one wait, while
    /// one-at-a-time keys work all the same. All engines of a queue need the same one.
    pub fn limiter(mut self, limiter: Arc<dyn Limiter>) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// How long [`Engine::shutdown`] takes at most. Default 30 s.
    pub const fn shutdown_limit(mut self, limit: Duration) -> Self {
        self.shutdown_limit = limit;
        self
    }

    /// How long terminal instances are kept. Default one day.
    pub const fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// How far a worker runs ahead with one instance (see [`Next::ahead`](crate::Next::ahead)): at most this many steps
    /// after the one that it claimed, none of them started later than this after that one. Then the instance goes
    /// through the queue, so that urgent work gets its turn (rule RUN-4). 0 steps turn it off. Default 50 steps, 1 s.
    pub const fn run_ahead_limit(mut self, steps: u32, time: Duration) -> Self {
        self.run_ahead = RunAheadLimit { steps, time };
        self
    }

    /// Whether this process returns the work of dead workers. Default yes; at least one process must.
    pub const fn reaper(mut self, on: bool) -> Self {
        self.reaper = on;
        self
    }

    /// Whether this process removes terminal instances after their retention. Default yes; one process must.
    pub const fn collector(mut self, on: bool) -> Self {
        self.collector = on;
        self
    }

    /// Whether heartbeats run on a thread of their own. Default yes; a simulation under paused time says no.
    pub const fn heartbeat_thread(mut self, on: bool) -> Self {
        self.heartbeat_thread = on;
        self
    }

    /// Checks every option.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let mut faults = self.registry.faults().to_vec();
        if self.name.is_empty() || self.name.contains('\0') {
            faults.push("name: it must have at least one character, and no NUL".to_owned());
        }
        let mut seen = HashSet::new();
        for queue in &self.queues {
            if let Err(error) = QueueName::new(queue.name.clone()) {
                faults.push(format!("queue \"{}\": {error}", queue.name.escape_debug()));
            }
            if !seen.insert(&queue.name) {
                faults.push(format!("queue \"{}\" is given twice", queue.name));
            }
            if queue.concurrency == 0 || queue.concurrency > LARGEST_CONCURRENCY {
                faults.push(format!(
                    "queue \"{}\": concurrency is {}; it must be 1 to {LARGEST_CONCURRENCY}",
                    queue.name, queue.concurrency
                ));
            }
        }
        if !self.queues.is_empty() && self.registry.is_empty() {
            faults.push("machine: queues are given, but no machine or job to run from them".to_owned());
        }
        if self.lease < SHORTEST_LEASE || self.lease > MAX_DURATION {
            faults.push(format!(
                "lease is {:?}; it must be {SHORTEST_LEASE:?} to 100 years",
                self.lease
            ));
        }
        if self.poll.is_zero() || self.poll > MAX_DURATION {
            faults.push(format!(
                "poll_interval is {:?}; it must be more than zero, at most 100 years",
                self.poll
            ));
        }
        for (option, value) in [
            ("shutdown_limit", self.shutdown_limit),
            ("run_ahead_limit", self.run_ahead.time),
            ("retention.done", self.retention.done),
            ("retention.failed", self.retention.failed),
            ("retention.cancelled", self.retention.cancelled),
        ] {
            if value > MAX_DURATION {
                faults.push(format!("{option} is {value:?}; it must be at most 100 years"));
            }
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(StartError::Configuration { faults })
        }
    }

    /// Checks the options and starts the roles.
    ///
    /// # Errors
    /// [`StartError`]: the configuration, with all its faults, before anything was done; a name that is
    /// taken; or the store.
    pub async fn start(self) -> Result<Engine, StartError> {
        self.check()?;
        Engine::start(self).await
    }

    /// Runs everything that this engine would run, inline, with delays collapsed, until nothing is left; for
    /// tests. See [`Drain`].
    ///
    /// ```
    /// # use durable_core::{DrainError, Engine, Job, Store};
    /// # async fn test<ShipOrder: Job>(store: std::sync::Arc<dyn Store>) -> Result<(), DrainError> {
    /// let tally = Engine::builder(store).queue("default").job::<ShipOrder>().drain().await?;
    /// assert_eq!(tally.count("done"), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn drain(self) -> Drain {
        Drain::new(self)
    }
}
