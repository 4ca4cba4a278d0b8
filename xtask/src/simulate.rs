//! Runs new seeds of the project's own simulation, for as long as one likes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use durable_testing::simulation::workload;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long to run seeds that were never run before.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Run this seed alone, and print every effect on the store.
    #[arg(long, conflicts_with = "seconds")]
    seed: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(seed) = arguments.seed {
        let report = workload::run(workload::simulation(seed).aloud())
            .map_err(|failed| anyhow::anyhow!("{failed}"))?;
        println!(
            "seed {seed} holds: {} effects, {:?} of its time",
            report.effects, report.time
        );
        return Ok(());
    }
    // Seeds of tests begin at 1.
    let first = rand::random::<u32>();
    let limit = Duration::from_secs(arguments.seconds);
    println!("simulating for {} s, from seed {first}", arguments.seconds);
    let (started, next) = (Instant::now(), AtomicU64::new(first.into()));
    let (effects, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let message = Mutex::new(None);
    std::thread::scope(|scope| {
        let work = || {
            while started.elapsed() < limit && !failed.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                match workload::run(workload::simulation(seed)) {
                    Ok(report) => {
                        effects.fetch_add(report.effects, Ordering::Relaxed);
                    }
                    Err(found) => {
                        failed.store(true, Ordering::Relaxed);
                        let text = format!("{found}\n`cargo xtask simulate --seed {seed}` does too");
                        message
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .get_or_insert(text);
                    }
                }
            }
        };
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let runs = next.load(Ordering::Relaxed) - u64::from(first);
    let effects = effects.load(Ordering::Relaxed);
    println!(
        "{runs} seeds, {effects} effects on the store, in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    match message.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(message) => Err(anyhow::anyhow!(message)),
        None => Ok(()),
    }
}
