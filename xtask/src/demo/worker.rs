//! A worker process of the demonstration: this program, started again.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use durable_core::{Engine, Queue};
use durable_pg::PgStore;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::order::{LEDGER, Order};
use super::stage::{Ledger, Stage};

/// How many steps a worker runs at a time: few, so that there is something to watch.
const CONCURRENCY: usize = 25;

/// How often a worker looks for work that another process inserted, while it has none.
const POLL: Duration = Duration::from_millis(100);

/// What a worker is told.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArguments {
    /// The database.
    url: String,
    /// The schema of the store and the ledger.
    schema: String,
}

/// Runs in the worker, until its standard input ends: so it also ends with whoever started it.
pub(crate) async fn run(arguments: &WorkerArguments) -> anyhow::Result<()> {
    let ledger = Ledger::open(&arguments.url, &arguments.schema).await?;
    anyhow::ensure!(LEDGER.set(ledger).is_ok(), "the ledger was opened before");
    let store = PgStore::builder(&arguments.url)?
        .schema(&arguments.schema)
        .connect()
        .await?;
    let engine = Engine::builder(store)
        .name("demo")
        .queue(Queue::new("default").concurrency(CONCURRENCY))
        .poll_interval(POLL)
        .machine::<Order>()
        .start()
        .await?;
    println!("ready");
    let mut nothing = Vec::new();
    tokio::io::stdin().read_to_end(&mut nothing).await?;
    engine.shutdown().await;
    Ok(())
}

/// A worker, seen from the demonstration. Killed when it is dropped.
pub(super) struct Worker {
    child: Child,
    process: u32,
}

impl Worker {
    /// Starts a worker and waits until its engine runs.
    pub(super) async fn start(stage: &Stage) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["demo-worker", &stage.url, &stage.schema])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a worker")?;
        let process = child.id().context("the worker has ended")?;
        let output = child.stdout.take().context("the worker has no output")?;
        let ready = BufReader::new(output).lines().next_line().await?;
        anyhow::ensure!(
            ready.as_deref() == Some("ready"),
            "worker {process} did not start"
        );
        Ok(Self { child, process })
    }

    /// Its process id.
    pub(super) const fn process(&self) -> u32 {
        self.process
    }

    /// Kills it with SIGKILL.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Ends it in good order.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await?;
        anyhow::ensure!(status.success(), "worker {} ended with {status}", self.process);
        Ok(())
    }
}
