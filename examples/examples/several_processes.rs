//! One program, two kinds of process: a web node that only inserts and waits, and workers that run the steps.
//!
//! In one terminal, or in several, and stop it with Ctrl-C or SIGTERM:
//! `DATABASE_URL=postgres://postgres@localhost/postgres cargo run -p durable-examples --example several_processes -- worker`
//!
//! In another one: the same with `-- web`.

use std::time::Duration;

use durable_core::{Client, Context, Engine, Insert, Machine, Queue, StepResult, done, next};
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Parcel {
    number: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Pack,
    Send,
}

impl Machine for Parcel {
    const NAME: &'static str = "parcel";
    const QUEUE: &'static str = "parcels";
    type Step = Step;
    type Result = u32;

    fn first_step() -> Step {
        Step::Pack
    }

    async fn step(self, step: Step, _context: &Context) -> StepResult<Self> {
        match step {
            Step::Pack => next(Step::Send, self).ok(),
            Step::Send => {
                println!("parcel {} sent", self.number);
                done(std::process::id()).ok()
            }
        }
    }
}

/// Runs steps until it is told to stop.
async fn worker(store: PgStore) -> anyhow::Result<()> {
    let engine = Engine::builder(store)
        .queue(Queue::new("parcels").concurrency(50))
        .machine::<Parcel>()
        .shutdown_limit(Duration::from_secs(10))
        .start()
        .await?;
    println!("process {} is worker {}", std::process::id(), engine.worker());
    told_to_stop().await?;
    println!("stopping");
    engine.shutdown().await;
    Ok(())
}

#[cfg(unix)]
async fn told_to_stop() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

#[cfg(not(unix))]
async fn told_to_stop() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Inserts and waits. No engine runs here: the results are read from the database.
async fn web(store: PgStore) -> anyhow::Result<()> {
    let client = Client::new(store);
    let parcels = (1..=20).map(|number| Insert::machine(Parcel { number }));
    for (number, inserted) in (1..).zip(client.insert_all(parcels).await?) {
        let by: u32 = client.result(inserted.id(), Duration::from_secs(60)).await?;
        println!("parcel {number} was sent by process {by}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let store = PgStore::connect(&durable_examples::database_url()?).await?;
    match mode.as_str() {
        "web" => web(store).await,
        "worker" => worker(store).await,
        _ => anyhow::bail!("say which kind of process this is: `-- web` or `-- worker`"),
    }
}
