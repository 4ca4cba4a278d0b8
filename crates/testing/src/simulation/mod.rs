//! Simulation: your machines on the real engine, in a world where everything goes wrong, a thousand times a minute.
//!
//! A simulation runs several engines, each a *process* of its own, on one store in memory. Time is not real: it jumps to
//! the next instant at which something happens, so that an hour passes in milliseconds. A seed decides everything else: in
//! which order things happen, which calls to the store fail, hang, or take effect and lose their answer, which pokes are
//! lost or come twice, when processes are killed, frozen past their lease, or redeployed, when the store goes away, and
//! which rows somebody else holds. So a seed that fails fails again, in the same way, as often as you like.
//!
//! ```
//! use std::time::Duration;
//!
//! use durable_core::{Context, Insert, Job, JobError};
//! use durable_testing::simulation::{Simulation, simulate};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet { name: String }
//!
//! impl Job for Greet {
//!     const NAME: &'static str = "greet";
//!     type Output = String;
//!
//!     async fn perform(&self, _context: &Context) -> Result<String, JobError> {
//!         tokio::time::sleep(Duration::from_secs(3)).await; // costs nothing here
//!         Ok(format!("hello {}", self.name))
//!     }
//! }
//!
//! simulate(20, |seed| {
//!     Simulation::new(seed)
//!         .engine(|engine| engine.queue("default").job::<Greet>())
//!         .run(async |world| {
//!             let id = world.client().insert(Insert::job(Greet { name: "Ada".into() })).await?.id();
//!             world.pause(Duration::from_secs(5)).await;
//!             world.settle().await;
//!             let greeting: String = world.client().result(id, Duration::ZERO).await?;
//!             assert_eq!(greeting, "hello Ada");
//!             Ok(())
//!         })
//! });
//! ```
//!
//! What is checked without a word of yours: after every effect on the store, that each executing instance is in one claim,
//! that an end is an end, that no step is skipped or undone, that every wait can still end; at the end, that everything
//! ended, and that the engines left no claim behind. What it means that *your* machine worked is yours to say.
//!
//! # What replays exactly
//! One run is one thread, from its start to its end, so a `thread_local!` is the place for a fake of the outside world. A
//! run is the same each time as long as your code takes no chance of its own: no random numbers (use
//! [`World::draw`]), no clock but tokio's, no threads, no `select!` without `biased`, no order of a `HashMap`. The
//! [report](Report) of a run has a number that two runs share only if all was the same.
//!
//! # What it does not show
//! The statements of a database: the store is a model, to which the one on Postgres is compared by other tests. Your code
//! in a frozen process goes on, only its calls to the store wait. A killed process stops at an await.

mod fate;
mod misfortune;
mod process;
mod trace;
pub mod workload;
mod world;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use durable_core::{Client, EngineBuilder, Error};

use crate::memory::MemoryStore;
use crate::pokes::MemoryPokes;
use fate::Fate;
use misfortune::Misfortune;
use process::{Build, Process};
use trace::Trace;
pub use world::World;

/// The environment variable with the one seed that [`simulate`] is to run, aloud.
pub const SEED_VARIABLE: &str = "DURABLE_SIMULATION_SEED";

/// One run, with all that its seed decides. See the [module](self).
#[derive(Clone)]
#[must_use = "nothing runs until run()"]
pub struct Simulation {
    seed: u64,
    processes: usize,
    patience: Duration,
    build: Build,
    aloud: bool,
}

/// What a run was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// One number for all that happened: two runs that share it were the same.
    pub trace: u64,
    /// How many calls took effect on the store.
    pub effects: u64,
    /// How much time passed in the simulated world.
    pub time: Duration,
}

/// A run that failed.
#[derive(Debug)]
pub struct Failed {
    /// Its seed.
    pub seed: u64,
    /// What was wrong.
    pub message: String,
    /// The last effects before.
    pub last_effects: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            message,
            last_effects,
        } = self;
        write!(
            formatter,
            "the last effects:\n{last_effects}\n\nseed {seed} fails: {message}\n{SEED_VARIABLE}={seed} runs it again, \
             with all effects"
        )
    }
}

impl Simulation {
    /// A simulation of three processes that run nothing yet.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            processes: 3,
            patience: Duration::from_secs(24 * 3600),
            build: Arc::new(|engine| engine),
            aloud: false,
        }
    }

    /// How the engine of each process is built, on a builder that has its store, pokes and heartbeats.
    pub fn engine(mut self, build: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static) -> Self {
        self.build = Arc::new(build);
        self
    }

    /// How many processes there are: at least 1. Default 3.
    pub fn processes(mut self, processes: usize) -> Self {
        self.processes = processes.max(1);
        self
    }

    /// How long, in the simulated world, all work may take to end once nothing goes wrong any more. Default one day.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Prints every effect to the standard error.
    pub const fn aloud(mut self) -> Self {
        self.aloud = true;
        self
    }

    /// Runs a scenario, and checks what must hold, during it and after it.
    ///
    /// # Panics
    /// If the scenario fails or panics, or something that must hold does not; the message says how to run it again.
    pub fn run<S>(self, scenario: S) -> Report
    where
        S: AsyncFnOnce(World) -> Result<(), Error>,
    {
        match self.try_run(scenario) {
            Ok(report) => report,
            Err(failed) => panic!("{failed}"),
        }
    }

    /// As [`run`](Self::run), for those who go on after a failure.
    ///
    /// # Errors
    /// What it would panic with.
    pub fn try_run<S>(self, scenario: S) -> Result<Report, Failed>
    where
        S: AsyncFnOnce(World) -> Result<(), Error>,
    {
        let seed = self.seed;
        let aloud = self.aloud || seed_from_environment() == Some(seed);
        let trace = Trace::default();
        if aloud {
            trace.aloud();
        }
        let of_trace = trace.clone();
        let failed = move |message| Failed {
            seed,
            message,
            last_effects: if aloud { String::new() } else { of_trace.last() },
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| failed(format!("no runtime: {error}")))?;
        let _chance = durable_core::chance::seed(seed);
        let run = || runtime.block_on(self.play(trace, scenario));
        match std::panic::catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(message)) => Err(failed(message)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(failed(format!(
                    "the scenario panicked: {}",
                    text.unwrap_or_default()
                )))
            }
        }
    }

    async fn play<S>(self, trace: Trace, scenario: S) -> Result<Report, String>
    where
        S: AsyncFnOnce(World) -> Result<(), Error>,
    {
        let world = self.world(&trace);
        for process in &world.0.processes {
            process.start();
        }
        let misfortune = Misfortune {
            fate: Arc::clone(&world.0.fate),
            trace: trace.clone(),
            store: world.0.store.clone(),
            pokes: world.0.pokes.clone(),
            processes: world.0.processes.clone(),
        };
        *world.0.misfortune.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(tokio::spawn(misfortune.run()));
        let whole = async {
            scenario(world.clone())
                .await
                .map_err(|error| format!("the scenario failed: {error}"))?;
            world.settle().await;
            for process in &world.0.processes {
                let worker = process.shut_down().await;
                if worker.is_some_and(|worker| world.0.store.look(|state, _| state.knows(worker))) {
                    return Err("an engine that was shut down left a claim behind".to_owned());
                }
            }
            Ok(())
        };
        tokio::select! {
            biased;
            violation = trace.violated() => return Err(violation),
            ended = whole => ended?,
        }
        let (trace, effects) = trace.sum();
        let time = world.0.store.look(|_, now| now);
        Ok(Report { trace, effects, time })
    }

    fn world(&self, trace: &Trace) -> World {
        let store = MemoryStore::new();
        store.witnessed(Box::new(trace.clone()));
        let fate = Arc::new(Fate::new(self.seed));
        let copies = Arc::clone(&fate);
        let pokes = MemoryPokes::copied(move || copies.copies());
        let process = |number| {
            let (build, store, pokes) = (Arc::clone(&self.build), store.clone(), pokes.clone());
            Process::new(number, build, store, pokes, Arc::clone(&fate), trace.clone())
        };
        let outside = Arc::new(process::Outside {
            fate: Arc::clone(&fate),
            faults: store.faults(),
        });
        let processes = (1..=self.processes).map(process).collect();
        World(Arc::new(world::Inside {
            client: Client::new(store.on(outside)).poking(pokes.node()),
            fate: Arc::clone(&fate),
            trace: trace.clone(),
            store,
            pokes,
            processes,
            misfortune: Mutex::new(None),
            patience: self.patience,
        }))
    }
}

fn seed_from_environment() -> Option<u64> {
    let text = std::env::var(SEED_VARIABLE).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{SEED_VARIABLE} is \"{text}\"; give a whole number")),
    )
}

/// Runs the seeds from 1 up to this many, on all cores; the same in every run, so that a failure is about a change. With
/// the environment variable `DURABLE_SIMULATION_SEED` it runs that seed alone, and prints every effect.
///
/// # Panics
/// As soon as a run does, with what it said.
pub fn simulate(seeds: u64, run: impl Fn(u64) -> Report + Sync) {
    if let Some(seed) = seed_from_environment() {
        run(seed);
        return;
    }
    let next = AtomicU64::new(1);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed > seeds {
                    return;
                }
                if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| run(seed))) {
                    next.store(seeds + 1, Ordering::Relaxed);
                    failed
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(panic);
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    if let Some(panic) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        std::panic::resume_unwind(panic);
    }
}
