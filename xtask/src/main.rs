//! The project's chores, as a program: `cargo xtask --help`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod ci;
mod demo;
mod phases;
mod setup;
mod simulate;
mod test;
mod tidy;

/// The chores of this repository. Every command works from any folder of it and asks no questions.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Find what the tests need, and install what is missing.
    ///
    /// Needed: the Postgres server programs. They are only installed, never started as a service. On
    /// Debian and its descendants they are installed with apt, through `sudo -n` unless this runs as
    /// root; elsewhere the command to run is printed.
    Setup,
    /// Set up, start a throw-away Postgres, and run every test.
    ///
    /// The server lives in a temporary directory and ends with this command. Set
    /// `DURABLE_TEST_POSTGRES_URL` to use a server of your own instead: a role that may create databases.
    Test(test::Arguments),
    /// See it work: 1,000 orders, two worker processes, one of them killed midway, and a proof at the end.
    ///
    /// Sets up and starts a throw-away Postgres, unless `--database-url` names one. The orders go through
    /// several steps that fail now and then; each step leaves a row in a ledger. At the end the ledger
    /// and the store must agree: nothing is lost, nothing ran after its commit, and nothing ran twice
    /// but for a retry or the kill. Fails if they do not. Takes some seconds; Ctrl-C cleans up.
    Demo(demo::Arguments),
    /// A worker process of the demonstration, which starts it.
    #[command(hide = true)]
    DemoWorker,
    /// Run the engine through random schedules and faults, under simulated time; no server is needed.
    ///
    /// Several engines on one store in memory; calls fail, hang and lose their answers, processes are killed and
    /// frozen, pokes are lost. A seed that fails is printed, and fails again whenever it is run.
    Simulate(simulate::Arguments),
    /// Measure the engine against the bare database, on a throw-away server; takes a few minutes.
    ///
    /// Build with `--release`: `cargo run --release -p xtask -- bench`.
    Bench(bench::Arguments),
    /// A worker process of a measurement.
    #[command(hide = true)]
    BenchWorker(bench::WorkerArguments),
    /// Check the rules of the repository that no compiler checks.
    ///
    /// Among them: every rule of docs/contract.md is named by a test, links in the documentation
    /// lead somewhere, durable-core names no database. All faults are reported at once.
    Tidy,
    /// Everything that must pass before a change is merged.
    ///
    /// Formatting, lints, tidy, tests, a short demonstration and documentation, each timed. A failure does
    /// not hide those of the later phases.
    Ci,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().chore).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(chore: Chore) -> anyhow::Result<()> {
    // Every path below is relative to the root of the repository.
    std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    match chore {
        Chore::Setup => setup::run(),
        Chore::Test(arguments) => test::run(&arguments).await,
        Chore::Demo(arguments) => demo::run(&arguments).await,
        Chore::DemoWorker => demo::worker::run().await,
        Chore::Simulate(arguments) => simulate::run(&arguments),
        Chore::Bench(arguments) => bench::run(&arguments).await,
        Chore::BenchWorker(arguments) => bench::run_worker(&arguments).await,
        Chore::Tidy => tidy::run(),
        Chore::Ci => ci::run().await,
    }
}
