//! A worker process of a measurement: this program, started again.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use durable_core::{Context, Engine, Job, JobError, Store};
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::subject::{Chain, Noop, Probe};

/// What a worker is told.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArguments {
    /// The database.
    url: String,
}

/// A job under the name of [`Probe`] that never ends.
#[derive(Serialize, Deserialize)]
struct Hang;

impl Job for Hang {
    const NAME: &'static str = Probe::NAME;
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        std::future::pending().await
    }
}

/// Runs in the worker: connects, and starts an engine when it is told to; ends with its standard input.
pub(crate) async fn run(arguments: &WorkerArguments) -> anyhow::Result<()> {
    let store: Arc<dyn Store> = PgStore::connect(&arguments.url).await?.into();
    println!("ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let order = lines.next_line().await?;
    let builder = Engine::builder(store)
        .queue("default")
        .job::<Noop>()
        .machine::<Chain>();
    let engine = match order.as_deref() {
        Some("go") => builder.job::<Probe>().start().await?,
        Some("hang") => builder.job::<Hang>().start().await?,
        _ => return Ok(()),
    };
    while lines.next_line().await?.is_some() {}
    engine.shutdown().await;
    Ok(())
}

/// A worker, seen from the measurement. Killed when it is dropped.
pub(super) struct Worker {
    child: Child,
    orders: ChildStdin,
}

impl Worker {
    /// Starts a worker that is connected and waits for its order.
    pub(super) async fn start(url: &str, number: usize) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench-worker", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting worker {number}"))?;
        let orders = child.stdin.take().context("no standard input")?;
        let answers = child.stdout.take().context("no standard output")?;
        let ready = BufReader::new(answers).lines().next_line().await?;
        anyhow::ensure!(ready.as_deref() == Some("ready"), "worker {number} did not start");
        Ok(Self { child, orders })
    }

    /// Starts its engine.
    pub(super) async fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.orders.write_all(b"go\n").await?)
    }

    /// Starts its engine; what it claims of [`Probe`] never ends.
    pub(super) async fn go_and_hang(&mut self) -> anyhow::Result<()> {
        Ok(self.orders.write_all(b"hang\n").await?)
    }

    /// Ends it in good order.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let Self { mut child, orders } = self;
        drop(orders);
        let status = child.wait().await?;
        anyhow::ensure!(status.success(), "a worker ended with {status}");
        Ok(())
    }

    /// Kills it: SIGKILL.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Processor time that it has used, in seconds; needs Linux.
    pub(super) fn processor_seconds(&self) -> anyhow::Result<f64> {
        /// What `sysconf(_SC_CLK_TCK)` says on every Linux of today.
        const TICKS_PER_SECOND: f64 = 100.0;
        let id = self.child.id().context("the worker has ended")?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let fields = stat.rsplit_once(')').context("an unknown form of stat")?.1;
        let ticks: f64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        Ok(ticks / TICKS_PER_SECOND)
    }
}
