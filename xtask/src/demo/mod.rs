//! `cargo xtask demo`: orders run on two worker processes, one of which is killed in the middle; then a ledger
//! of effects shows that nothing was lost and nothing ran after its commit.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use durable_core::{Client, Insert};
use durable_testing::PostgresServer;
use durable_testing::servers::Durability;
use indicatif::{ProgressBar, ProgressStyle};

mod ledger;
mod order;
mod report;
mod stage;
mod worker;

pub(crate) use worker::{WorkerArguments, run as run_worker};

use order::Order;
use stage::Stage;
use worker::Worker;

/// How the demonstration runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many orders are inserted.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(20..=100_000))]
    orders: u64,
    /// Which steps fail and how long they take; the same seed fails the same steps.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run on this server instead of a throw-away one, in a schema of its own that is dropped at the end.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
}

/// A worker is killed when this part of the orders is terminal.
const KILL_AT_PERCENT: u64 = 40;
/// The demonstration gives up when nothing ends for this long: longer than any recovery takes.
const STUCK_AFTER: Duration = Duration::from_secs(60);

pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let server = match &arguments.database_url {
        Some(_) => None,
        None => {
            crate::setup::run()?;
            println!("starting a throw-away Postgres");
            Some(PostgresServer::start_own(Durability::Full).await?)
        }
    };
    let url = match (&arguments.database_url, &server) {
        (Some(url), _) => url,
        (None, Some(server)) => server.url(),
        (None, None) => anyhow::bail!("no server"),
    };
    let mut stage = Stage::open(url).await?;
    let outcome = tokio::select! {
        outcome = perform(arguments, &mut stage) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    // Also after a failure: on a server of the user nothing is left behind.
    let closed = stage.close().await;
    outcome.and(closed)
}

async fn perform(arguments: &Arguments, stage: &mut Stage) -> anyhow::Result<()> {
    let client = Client::new(stage.store());
    println!("starting two worker processes");
    let mut first = Worker::start(stage).await?;
    let second = Worker::start(stage).await?;
    let progress = Progress::new(arguments.orders);
    let started = Instant::now();
    let orders = (0..arguments.orders).map(|number| Insert::machine(Order::new(number, arguments.seed)));
    client.insert_all(orders).await?;
    progress.say(&format!(
        "inserted {} orders of {} steps each",
        arguments.orders,
        order::STEPS
    ));

    let kill_at = arguments.orders * KILL_AT_PERCENT / 100;
    wait_for(stage, &progress, kill_at).await?;
    let killed = first.process();
    first.kill().await?;
    let killed_at = stage.now().await?;
    progress.say(&format!("killed worker {killed} with SIGKILL; starting another"));
    let third = Worker::start(stage).await?;
    wait_for(stage, &progress, arguments.orders).await?;
    let took = started.elapsed();
    progress.finish();

    second.stop().await?;
    third.stop().await?;
    let orders = stage.orders().await?;
    let effects = stage.effects().await?;
    let summary = report::Summary::new(&orders, &effects, took, killed_at);
    println!("{}", summary.table());
    let faults = ledger::faults(arguments.orders, &orders, &effects, &killed);
    if faults.is_empty() {
        println!(
            "the ledger of {} effects agrees: nothing was lost, nothing ran after its commit",
            effects.len()
        );
        return Ok(());
    }
    for fault in faults.iter().take(20) {
        eprintln!("fault: {fault}");
    }
    anyhow::bail!("{} faults in the ledger", faults.len())
}

/// Waits until this many orders are terminal.
async fn wait_for(stage: &mut Stage, progress: &Progress, orders: u64) -> anyhow::Result<()> {
    let mut last = (0, Instant::now());
    loop {
        let (terminal, steps) = stage.progress().await?;
        progress.show(terminal, steps);
        if terminal >= orders {
            return Ok(());
        }
        if terminal > last.0 {
            last = (terminal, Instant::now());
        }
        if last.1.elapsed() > STUCK_AFTER {
            anyhow::bail!("{terminal} orders are terminal, and no other one ended for {STUCK_AFTER:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A live bar on a terminal, a line now and then elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    last: std::cell::Cell<Option<Instant>>,
    started: Instant,
}

impl Progress {
    fn new(orders: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(orders);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} orders, {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            last: std::cell::Cell::new(None),
            started: Instant::now(),
        }
    }

    fn show(&self, terminal: u64, steps: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a count of steps, for people")]
        let rate = steps as f64 / self.started.elapsed().as_secs_f64();
        let message = format!("{steps} steps run, {rate:.0} a second");
        match &self.bar {
            Some(bar) => {
                bar.set_message(message);
                bar.set_position(terminal);
            }
            None if self
                .last
                .get()
                .is_none_or(|last| last.elapsed() > Duration::from_secs(1)) =>
            {
                self.last.set(Some(Instant::now()));
                println!("{terminal} orders are terminal, {message}");
            }
            None => {}
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => println!("{text}"),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// An answer that must be there.
fn first<T>(rows: Vec<T>) -> anyhow::Result<T> {
    rows.into_iter().next().context("the database gave no answer")
}
