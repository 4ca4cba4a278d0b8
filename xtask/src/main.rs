//! The project's chores, as a program: `cargo xtask --help`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod ci;
mod demo;
mod phases;
mod setup;
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
    /// Watch a thousand orders survive the kill of a worker; takes a few seconds.
    ///
    /// Starts a throw-away Postgres and two worker processes, inserts orders of four steps, some of which
    /// fail at random, kills one worker with SIGKILL in the middle, and starts another. At the end, a ledger
    /// of effects shows that nothing was lost and nothing ran after its commit; else the command fails.
    Demo(demo::Arguments),
    /// A worker process of the demonstration.
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
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
    /// Formatting, lints, tidy, tests and documentation, each timed. A failure does not hide those of
    /// the later phases.
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
        Chore::DemoWorker(arguments) => demo::run_worker(&arguments).await,
        Chore::Bench(arguments) => bench::run(&arguments).await,
        Chore::BenchWorker(arguments) => bench::run_worker(&arguments).await,
        Chore::Tidy => tidy::run(),
        Chore::Ci => ci::run().await,
    }
}
