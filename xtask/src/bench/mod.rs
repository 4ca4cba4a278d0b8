//! Measures the engine against the bare database, in one run on one throw-away server.

use anyhow::Context as _;
use durable_testing::PostgresServer;
use durable_testing::servers::Durability;
use indicatif::{ProgressBar, ProgressStyle};

mod figures;
mod floors;
mod subject;
mod worker;
mod workloads;

use figures::{Figures, Sample};
pub(crate) use worker::{WorkerArguments, run as run_worker};
use workloads::Workload;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A tenth of the instances, and one run instead of five.
    #[arg(long)]
    quick: bool,
    /// Only these, separated by commas; all but those that take minutes if none is named.
    #[arg(long, value_delimiter = ',', value_name = "W1,W2,...")]
    workload: Vec<Workload>,
    /// How many runs; the figures are medians.
    #[arg(long)]
    runs: Option<usize>,
    /// Also write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// What every workload gets.
struct Bench {
    server: PostgresServer,
    quick: bool,
}

impl Bench {
    /// A number of instances, or a tenth of it in a quick run.
    fn scaled(&self, instances: u32) -> u32 {
        if self.quick { instances / 10 } else { instances }
    }
}

pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: build with --release for figures that mean something");
    }
    let workloads = if arguments.workload.is_empty() {
        Workload::usual()
    } else {
        arguments.workload.clone()
    };
    let runs = arguments.runs.unwrap_or(if arguments.quick { 1 } else { 5 });
    let progress = ProgressBar::new((workloads.len() * runs) as u64);
    progress.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {msg} ({elapsed})",
    )?);
    progress.enable_steady_tick(std::time::Duration::from_millis(200));
    progress.set_message("starting a server");
    let bench = Bench {
        server: PostgresServer::start_own(Durability::Full).await?,
        quick: arguments.quick,
    };
    let mut figures = Figures::default();
    // One run of everything after the other, so that a disturbance meets few runs of one workload.
    for _ in 0..runs {
        for workload in &workloads {
            progress.set_message(workload.title());
            let samples: Vec<Sample> = workload
                .run(&bench)
                .await
                .with_context(|| format!("workload {workload:?}"))?;
            figures.add(samples);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    println!("full durability, engine defaults, medians of {runs} run(s); ratios are of one run");
    println!("{}", figures.table());
    if let Some(file) = &arguments.json {
        figures.write_json(file)?;
    }
    Ok(())
}
