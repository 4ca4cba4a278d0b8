//! The workloads, by the numbers of docs/performance.md.

use super::{Bench, Sample};

mod bytes;
mod chain;
mod drain;
mod fan_out;
mod idle;
mod insert;
mod latency;
mod recovery;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "verbatim")]
pub(super) enum Workload {
    /// The layout that was not chosen, against the one that was.
    Layout,
    /// Drain of no-op jobs, one process.
    W1,
    /// Inserts: single ones from 16 callers, batches of 1,000.
    W2,
    /// Insert to handler start, and to result, on an idle engine.
    W3,
    /// Machines of five steps through the queue.
    W4,
    /// W1 with 1,000,000 terminal rows.
    W6,
    /// W1 with 100,000 future rows at a more urgent priority.
    W7,
    /// State of 1 kB to 1 MB: bytes of a claim and of a heartbeat.
    W8,
    /// Bytes of WAL, statements and commits per job.
    W9,
    /// A fan-out of 10,000 children and its join.
    W11,
    /// W1 with 2 and 4 processes.
    W12,
    /// A snapshot held open for 5 minutes at 2,000 jobs/s. Takes 6 minutes.
    W13,
    /// SIGKILL of a worker: how soon its work runs elsewhere.
    W14,
    /// An idle engine.
    W15,
}

impl Workload {
    /// All but those that take minutes.
    pub(super) fn usual() -> Vec<Self> {
        use clap::ValueEnum as _;
        Self::value_variants()
            .iter()
            .copied()
            .filter(|workload| *workload != Self::W13)
            .collect()
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Layout => "the other layout",
            Self::W1 => "W1 drain",
            Self::W2 => "W2 inserts",
            Self::W3 => "W3 latency",
            Self::W4 => "W4 five steps",
            Self::W6 => "W6 with terminal rows",
            Self::W7 => "W7 with future rows",
            Self::W8 => "W8 large state",
            Self::W9 => "W9 bytes and statements per job",
            Self::W11 => "W11 fan-out",
            Self::W12 => "W12 several processes",
            Self::W13 => "W13 a held snapshot",
            Self::W14 => "W14 a killed worker",
            Self::W15 => "W15 idle",
        }
    }

    pub(super) async fn run(self, bench: &Bench) -> anyhow::Result<Vec<Sample>> {
        match self {
            Self::Layout => drain::layout(bench).await,
            Self::W1 => drain::plain(bench).await,
            Self::W2 => insert::run(bench).await,
            Self::W3 => latency::run(bench).await,
            Self::W4 => chain::run(bench).await,
            Self::W6 => drain::with_terminal_rows(bench).await,
            Self::W7 => drain::with_future_rows(bench).await,
            Self::W8 => bytes::large_state(bench).await,
            Self::W9 => bytes::per_job(bench).await,
            Self::W11 => fan_out::run(bench).await,
            Self::W12 => drain::several_processes(bench).await,
            Self::W13 => drain::with_a_held_snapshot(bench).await,
            Self::W14 => recovery::run(bench).await,
            Self::W15 => idle::run(bench).await,
        }
    }
}
