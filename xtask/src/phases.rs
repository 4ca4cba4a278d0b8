//! Work in named, timed phases, with a summary at the end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// The phases that have run so far.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    finished: Vec<Finished>,
}

#[derive(Debug)]
struct Finished {
    name: &'static str,
    took: Duration,
    passed: bool,
}

impl Phases {
    /// Runs a phase. A failure is printed and remembered; the next phases run all the same.
    pub(crate) fn run(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<()>) {
        let start = begin(name);
        self.end(name, start, &work());
    }

    /// Runs a phase that waits, as [`run`](Self::run) does.
    pub(crate) async fn wait_for(
        &mut self,
        name: &'static str,
        work: impl Future<Output = anyhow::Result<()>>,
    ) {
        let start = begin(name);
        self.end(name, start, &work.await);
    }

    fn end(&mut self, name: &'static str, start: Instant, outcome: &anyhow::Result<()>) {
        if let Err(error) = outcome {
            eprintln!("{name} failed: {error:#}");
        }
        let finished = Finished {
            name,
            took: start.elapsed(),
            passed: outcome.is_ok(),
        };
        println!("== {finished}");
        self.finished.push(finished);
    }

    /// Prints what each phase took; an error if any failed.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        println!();
        for finished in &self.finished {
            println!("{finished}");
        }
        let failed: Vec<&str> = self
            .finished
            .iter()
            .filter(|finished| !finished.passed)
            .map(|finished| finished.name)
            .collect();
        anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }
}

fn begin(name: &str) -> Instant {
    println!("\n== {name}");
    Instant::now()
}

impl std::fmt::Display for Finished {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outcome = if self.passed { "ok" } else { "FAILED" };
        write!(
            formatter,
            "{:<20} {outcome:<6} {:>7.1} s",
            self.name,
            self.took.as_secs_f64()
        )
    }
}

/// Cargo, the same that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command to its end; anything but success is an error.
pub(crate) fn finish(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    anyhow::ensure!(status.success(), "{program}: {status}");
    Ok(())
}
