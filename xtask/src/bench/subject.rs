//! The engine under measurement: its jobs, its database, and how an end is noticed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use durable_core::{
    Client, Context, Engine, EngineBuilder, Insert, Job, JobError, Machine, StepResult, Store, done, next,
    schedule_children,
};
use durable_pg::PgStore;
use durable_testing::{PostgresServer, TestDatabase};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::mpsc;

/// A job that does nothing.
#[derive(Serialize, Deserialize)]
pub(super) struct Noop {
    pub(super) order: u64,
}

impl Job for Noop {
    const NAME: &'static str = "noop";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// Where [`Probe`] says that it started.
static STARTED: Mutex<Option<mpsc::UnboundedSender<Instant>>> = Mutex::new(None);

/// A job that tells when it started.
#[derive(Serialize, Deserialize)]
pub(super) struct Probe;

impl Probe {
    /// From now on, each start is sent here.
    pub(super) fn listen() -> mpsc::UnboundedReceiver<Instant> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *STARTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }
}

impl Job for Probe {
    const NAME: &'static str = "probe";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        let now = Instant::now();
        if let Some(sender) = &*STARTED.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = sender.send(now);
        }
        Ok(())
    }
}

/// A machine of five steps that do nothing.
#[derive(Serialize, Deserialize)]
pub(super) struct Chain {
    pub(super) order: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChainStep {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
}

impl Machine for Chain {
    const NAME: &'static str = "chain";
    type Step = ChainStep;
    type Result = u64;

    fn first_step() -> ChainStep {
        ChainStep::First
    }

    async fn step(self, step: ChainStep, _context: &Context) -> StepResult<Self> {
        match step {
            ChainStep::First => next(ChainStep::Second, self).ok(),
            ChainStep::Second => next(ChainStep::Third, self).ok(),
            ChainStep::Third => next(ChainStep::Fourth, self).ok(),
            ChainStep::Fourth => next(ChainStep::Fifth, self).ok(),
            ChainStep::Fifth => done(self.order).ok(),
        }
    }
}

/// Schedules no-op jobs as its children, and is done when all of them are.
#[derive(Serialize, Deserialize)]
pub(super) struct FanOut {
    pub(super) children: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) enum FanOutStep {
    Split,
    Join,
}

impl Machine for FanOut {
    const NAME: &'static str = "fan_out";
    type Step = FanOutStep;
    type Result = u64;

    fn first_step() -> FanOutStep {
        FanOutStep::Split
    }

    async fn step(self, step: FanOutStep, context: &Context) -> StepResult<Self> {
        match step {
            FanOutStep::Split => {
                let children = (0..self.children).map(|order| Insert::job(Noop { order }));
                schedule_children(FanOutStep::Join, self).children(children).ok()
            }
            FanOutStep::Join => {
                let mut joined = 0;
                for child in context.children() {
                    child.done::<()>()?;
                    joined += 1;
                }
                done(joined).ok()
            }
        }
    }
}

/// A migrated database, a store and a client on it, and a connection to look at it from outside.
pub(super) struct Subject {
    pub(super) database: TestDatabase,
    pub(super) store: Arc<dyn Store>,
    pub(super) client: Client,
    pub(super) outside: PgConnection,
}

impl Subject {
    pub(super) async fn new(server: &PostgresServer) -> anyhow::Result<Self> {
        let database = TestDatabase::on(server).await?;
        let store: Arc<dyn Store> = PgStore::connect(&database.url()).await?.into();
        Ok(Self {
            client: Client::new(Arc::clone(&store)),
            outside: PgConnection::connect(&database.url()).await?,
            database,
            store,
        })
    }

    /// An engine with every default.
    pub(super) fn engine(&self) -> EngineBuilder {
        Engine::builder(Arc::clone(&self.store))
            .queue("default")
            .job::<Noop>()
            .job::<Probe>()
            .machine::<Chain>()
            .machine::<FanOut>()
    }

    /// Inserts no-op jobs in batches of 1,000.
    pub(super) async fn fill(&self, instances: u32) -> anyhow::Result<()> {
        self.fill_with(instances, |order| Insert::job(Noop { order }))
            .await
    }

    /// Inserts in batches of 1,000.
    pub(super) async fn fill_with<R>(
        &self,
        instances: u32,
        insert: impl Fn(u64) -> Insert<R>,
    ) -> anyhow::Result<()> {
        for batch in 0..instances.div_ceil(1000) {
            let orders = (batch * 1000..instances.min(batch * 1000 + 1000)).map(u64::from);
            self.client.insert_all(orders.map(&insert)).await?;
        }
        Ok(())
    }

    /// Waits until this many instances are terminal.
    pub(super) async fn finished(&mut self, instances: u32) -> anyhow::Result<()> {
        loop {
            let done: i64 =
                sqlx::query_scalar("SELECT coalesce(sum(instances), 0)::bigint FROM durable.finished")
                    .fetch_one(&mut self.outside)
                    .await?;
            if done >= i64::from(instances) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Drains what is there with one engine; how long that took.
    pub(super) async fn drain(&mut self, instances: u32) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let engine = self.engine().start().await?;
        self.finished(instances).await?;
        let took = started.elapsed();
        engine.shutdown().await;
        Ok(took)
    }
}

/// How many per second.
pub(super) fn rate(count: u32, took: Duration) -> f64 {
    f64::from(count) / took.as_secs_f64()
}
