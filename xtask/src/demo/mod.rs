//! The main job as a new user meets it: orders that go through several steps, two worker processes, one of
//! them killed midway, and a proof that the work was done all the same. Orders wait for payments, of which some are
//! reported twice and some never, and fan out to their line items.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use durable_core::{Client, Insert};
use durable_pg::PgStore;
use tokio::signal::unix::{SignalKind, signal};

use crate::setup;
use checks::{Evidence, Placed};
use ledger::{Count, Ledger};
use order::Order;
use payment::{Payment, order_key};
use place::Place;
use process::Worker;
use progress::Progress;

mod checks;
mod ledger;
mod line;
mod order;
mod payment;
mod place;
mod process;
mod progress;
mod report;
pub(crate) mod worker;

/// What to show.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many orders.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) orders: u32,
    /// Decides which steps fail by chance: the same number, the same failures.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Use the database of this address instead of starting a server.
    ///
    /// Everything goes into a schema of its own, which is removed at the end; the role must be allowed to
    /// create schemas in the database.
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
}

/// How many orders one insert takes.
const INSERT_AT_ONCE: usize = 100;
/// When a worker is killed: so many percent of the orders are finished.
const KILL_AT_PERCENT: u64 = 40;
/// How often the orders are counted.
const COUNT_EVERY: Duration = Duration::from_millis(50);
/// How long to wait for a worker that is worth killing, and how often to look: steps take milliseconds.
const WAIT_FOR_BUSY: Duration = Duration::from_secs(2);
const LOOK_FOR_BUSY_EVERY: Duration = Duration::from_millis(2);
/// So long without any progress means that the rest will never finish: several leases of a worker.
const STUCK_AFTER: Duration = Duration::from_secs(45);

/// Runs the demonstration; an error if a check fails.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.database_url.is_none() {
        setup::run()?;
    }
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut interrupted = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let place = tokio::select! {
        place = Place::find(arguments.database_url.as_deref()) => place?,
        () = interrupted() => bail!("interrupted"),
    };
    // Whatever is dropped midway takes its worker processes with it.
    let outcome = tokio::select! {
        outcome = perform(arguments, &place) => outcome,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    let cleared = place.clear().await;
    outcome.and(cleared)
}

async fn perform(arguments: &Arguments, place: &Place) -> anyhow::Result<()> {
    let mut progress = Progress::new(u64::from(arguments.orders))?;
    progress.say(format!("this runs on {}", place.describe()));
    let store = PgStore::builder(&place.url)?.schema(&place.schema);
    let store = store.connect().await.with_context(|| {
        format!(
            "cannot make schema {}; the role must be allowed to create schemas in the database",
            place.schema
        )
    })?;
    let client = Client::new(store);
    let ledger = Ledger::connect(&place.url, &place.schema, "demo").await?;
    ledger.create().await?;

    let mut stage = Stage {
        workers: vec![
            Worker::start("worker-1", place).await?,
            Worker::start("worker-2", place).await?,
        ],
        ledger: &ledger,
        last: Count::default(),
        moved: Instant::now(),
    };
    for worker in &stage.workers {
        progress.say(format!("{} started, process {}", worker.name, worker.process_id));
    }
    let inserted = insert(&client, arguments).await?;
    progress.say(format!(
        "{} orders inserted, and paid where somebody pays",
        inserted.len()
    ));

    let total = inserted.len() as u64;
    stage.until(total * KILL_AT_PERCENT / 100, &mut progress).await?;
    let (killed, killed_at) = stage.kill_one(&mut progress).await?;
    stage.workers.push(Worker::start("worker-3", place).await?);
    progress.say("worker-3 started in its place");
    let all_finished = stage.until(total, &mut progress).await?;
    progress.finish();
    if !all_finished {
        eprintln!("nothing has moved for {STUCK_AFTER:?}: the checks say what is left");
    }
    // The workers end before the ledger is read: nothing can be written to it any more.
    for worker in stage.workers {
        worker.end().await?;
    }
    let evidence = Evidence {
        inserted,
        orders: ledger.orders().await?,
        effects: ledger.effects().await?,
        lines: ledger.lines().await?,
        killed: Some(killed),
    };
    ledger.close().await;
    conclude(&evidence, killed_at)
}

/// Inserts the orders, and reports their payments.
async fn insert(client: &Client, arguments: &Arguments) -> anyhow::Result<Vec<Placed>> {
    let mut placed = Vec::new();
    let numbers: Vec<u32> = (0..arguments.orders).collect();
    for numbers in numbers.chunks(INSERT_AT_ONCE) {
        let orders = numbers.iter().map(|number| {
            let order = Insert::machine(Order::new(*number, arguments.seed));
            order.correlation_key(order_key(*number))
        });
        let inserted = client.insert_all(orders).await?;
        placed.extend(numbers.iter().zip(&inserted).map(|(&number, inserted)| Placed {
            instance: inserted.id().get(),
            number,
            payment: Payment::of(number, arguments.seed),
        }));
        payment::send(client, numbers, arguments.seed).await?;
    }
    Ok(placed)
}

/// Prints what has been shown; an error if a check fails.
fn conclude(evidence: &Evidence, killed_at: i64) -> anyhow::Result<()> {
    println!("{}", report::figures(evidence, killed_at));
    let faults = checks::check(evidence);
    println!("{}", report::verdicts(&faults));
    for line in report::explain(&faults) {
        eprintln!("{line}");
    }
    anyhow::ensure!(
        faults.is_empty(),
        "the store and the effect ledger disagree, see above"
    );
    Ok(())
}

/// The workers, and how far they are.
struct Stage<'demo> {
    workers: Vec<Worker>,
    ledger: &'demo Ledger,
    last: Count,
    /// When the count last changed.
    moved: Instant,
}

impl Stage<'_> {
    /// Waits until so many orders are terminal; `false` when nothing moves any more.
    async fn until(&mut self, terminal: u64, progress: &mut Progress) -> anyhow::Result<bool> {
        loop {
            let count = self.ledger.count().await?;
            progress.count(count);
            if count.terminal >= terminal {
                return Ok(true);
            }
            if count != self.last {
                (self.last, self.moved) = (count, Instant::now());
            } else if self.moved.elapsed() > STUCK_AFTER {
                return Ok(false);
            }
            for worker in &mut self.workers {
                if let Some(status) = worker.has_ended()? {
                    bail!("{} ended by itself: {status}", worker.name);
                }
            }
            tokio::time::sleep(COUNT_EVERY).await;
        }
    }

    /// Kills a worker in the middle of its work; answers its name and when, by the database's clock.
    async fn kill_one(&mut self, progress: &mut Progress) -> anyhow::Result<(String, i64)> {
        let (name, held) = self.busy_worker().await?;
        let found = self.workers.iter().position(|worker| worker.name == name);
        let worker = self
            .workers
            .swap_remove(found.context("an unknown worker holds orders")?);
        let killed_at = self.ledger.now().await?;
        worker.kill().await?;
        progress.say(format!("{name} killed with SIGKILL; it held {held} orders"));
        Ok((name, killed_at))
    }

    /// A worker that holds orders, and how many. After a while, any: there may be too few orders.
    async fn busy_worker(&self) -> anyhow::Result<(String, i64)> {
        let until = Instant::now() + WAIT_FOR_BUSY;
        while Instant::now() < until {
            if let Some(busiest) = self.ledger.busiest().await? {
                return Ok(busiest);
            }
            tokio::time::sleep(LOOK_FOR_BUSY_EVERY).await;
        }
        let any = self.workers.first().context("no worker is left")?;
        Ok((any.name.clone(), 0))
    }
}
