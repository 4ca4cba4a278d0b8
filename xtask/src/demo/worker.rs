//! The worker process: one engine, as a service would run it.
//!
//! The demonstration holds the other end of its standard input. The first line there says where to work; when
//! the input ends, the demonstration is over or gone, however it ended, and so the worker ends too.

use std::io::BufRead as _;
use std::time::Duration;

use anyhow::Context as _;
use durable_core::Engine;
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::ledger::Ledger;
use super::line::{Line, STORE};
use super::order::{LEDGER, Order};

/// How long the engine may take to stop: the steps take milliseconds, and the server may be gone.
const STOP_WITHIN: Duration = Duration::from_secs(4);

/// What a worker must know.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) schema: String,
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let (told, task) = oneshot::channel();
    let (over, mut ended) = oneshot::channel::<()>();
    // A thread of its own, because a process can end while such a thread still waits for input.
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = String::new();
        let read = input.read_line(&mut line).map(|_| line);
        let _ = told.send(read);
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        drop(over);
    });
    let line = task.await?.context("reading standard input")?;
    let task: Task = serde_json::from_str(&line)
        .context("this command is for `cargo xtask demo`, which tells it on standard input where to work")?;
    let engine = tokio::select! {
        engine = start(&task) => engine.with_context(|| format!("{} cannot start", task.name))?,
        _ = &mut ended => return Ok(()),
    };
    let _ = ended.await;
    let stopped = tokio::time::timeout(STOP_WITHIN, engine.shutdown()).await;
    stopped.with_context(|| format!("{} did not stop within {STOP_WITHIN:?}", task.name))
}

/// An engine with every option as it is by default.
async fn start(task: &Task) -> anyhow::Result<Engine> {
    let ledger = Ledger::connect(&task.url, &task.schema, &task.name).await?;
    LEDGER
        .set(ledger)
        .map_err(|_| anyhow::anyhow!("the ledger is set twice"))?;
    let store = PgStore::builder(&task.url)?.schema(&task.schema);
    let store = store.connect().await?;
    let unset = STORE.set(store.clone());
    anyhow::ensure!(unset.is_ok(), "the store is set twice");
    let engine = Engine::builder(store)
        .name(&task.name)
        .queue("default")
        .machine::<Order>()
        .machine::<Line>();
    Ok(engine.start().await?)
}
