//! A machine that leaves a trail: each run of a step is a row of a ledger, so that a test can say afterwards
//! what ran, how often, and where.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use durable_core::{Client, Context, Insert, InstanceId, Machine, StepResult, done, next};
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::watch;

/// Whether steps that reached the gate may go on.
static GATE: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::channel(true).0);

/// Steps of the last round but one wait for this, in this process.
pub(crate) fn set_gate(open: bool) {
    GATE.send_replace(open);
}

/// The round whose steps stop at the gate.
pub(crate) const GATED_ROUND: u32 = 1;

/// One run of a step.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) instance: i64,
    pub(crate) round: i32,
    pub(crate) attempt: i32,
    pub(crate) crashes: i32,
    pub(crate) process: i64,
}

/// Walks `rounds` steps, one after the other.
#[derive(Serialize, Deserialize)]
pub(crate) struct Trail {
    /// The database of the ledger.
    url: String,
    rounds: u32,
    round: u32,
}

impl Trail {
    /// A new one.
    pub(crate) fn insert(url: &str, rounds: u32) -> Insert<u32> {
        Insert::machine(Self {
            url: url.to_owned(),
            rounds,
            round: 0,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrailStep {
    Walk,
}

/// One small pool per ledger and process; each test has a ledger of its own.
fn ledger(url: &str) -> PgPool {
    static POOLS: LazyLock<Mutex<HashMap<String, PgPool>>> = LazyLock::new(Mutex::default);
    let mut pools = POOLS.lock().expect("whole");
    let open = || {
        let options = PgPoolOptions::new().max_connections(3);
        options.connect_lazy(url).expect("a url")
    };
    pools.entry(url.to_owned()).or_insert_with(open).clone()
}

/// Says something to the process that started this one, past the capture of the test program.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "worker: {line}").and_then(|()| out.flush());
}

impl Machine for Trail {
    const NAME: &'static str = "trail";
    type Step = TrailStep;
    type Result = u32;

    fn first_step() -> TrailStep {
        TrailStep::Walk
    }

    async fn step(mut self, _step: TrailStep, context: &Context) -> StepResult<Self> {
        // The ledger may be away for as long as the store is.
        let record = || {
            sqlx::query(
                "INSERT INTO ledger (instance, round, attempt, crashes, process) VALUES ($1, $2, $3, $4, $5)",
            )
            .bind(context.id().get())
            .bind(i32::try_from(self.round).expect("small"))
            .bind(i32::try_from(context.attempt()).expect("small"))
            .bind(i32::try_from(context.crashes()).expect("small"))
            .bind(i64::from(std::process::id()))
        };
        let pool = ledger(&self.url);
        while record().execute(&pool).await.is_err() {
            tokio::task::yield_now().await;
        }
        let mut gate = GATE.subscribe();
        if self.round == GATED_ROUND && !*gate.borrow() {
            say("waiting");
            let mut tripped = false;
            while !*gate.borrow_and_update() {
                tokio::select! {
                    _ = gate.changed() => {}
                    () = context.stopping().cancelled(), if !tripped => {
                        say("tripped");
                        tripped = true;
                    }
                }
            }
        }
        self.round += 1;
        if self.round == self.rounds {
            return done(std::process::id()).ok();
        }
        next(TrailStep::Walk, self).ok()
    }
}

/// The ledger of a database, and what the test asks of it.
pub(crate) struct Ledger {
    pool: PgPool,
}

impl Ledger {
    pub(crate) async fn create(database: &TestDatabase) -> Self {
        Self::open(database.pool(2).await.expect("a pool")).await
    }

    pub(crate) async fn open(pool: PgPool) -> Self {
        sqlx::query(
            "CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY, instance bigint NOT NULL, \
             round integer NOT NULL, attempt integer NOT NULL, crashes integer NOT NULL, process bigint NOT NULL)",
        )
        .execute(&pool)
        .await
        .expect("created");
        Self { pool }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// All runs, in the order in which they began.
    pub(crate) async fn runs(&self) -> Vec<Run> {
        let rows: Vec<(i64, i32, i32, i32, i64)> =
            sqlx::query_as("SELECT instance, round, attempt, crashes, process FROM ledger ORDER BY id")
                .fetch_all(&self.pool)
                .await
                .expect("read");
        let run = |(instance, round, attempt, crashes, process)| Run {
            instance,
            round,
            attempt,
            crashes,
            process,
        };
        rows.into_iter().map(run).collect()
    }

    /// The runs of one instance: each round, with the attempts that ran it.
    pub(crate) async fn rounds(&self, id: InstanceId) -> Vec<(i32, i32)> {
        let runs = self.runs().await.into_iter();
        runs.filter(|run| run.instance == id.get())
            .map(|run| (run.round, run.attempt))
            .collect()
    }

    /// Checks that every instance ran each round at least once, and nothing else ran.
    pub(crate) async fn is_explained_by_at_least_once(&self, ids: &[InstanceId], rounds: i32) {
        let mut walked = self.walked().await;
        assert_eq!(walked.len(), ids.len(), "each instance ran, and no other");
        for id in ids {
            let mut walked = walked.remove(&id.get()).expect("it ran");
            walked.sort_unstable();
            walked.dedup();
            assert_eq!(
                walked,
                (0..rounds).collect::<Vec<_>>(),
                "instance {id} skipped a step"
            );
        }
    }

    /// Checks that no instance ran a step again after it was committed: in the order in which runs began, the
    /// round never goes back. Not so after a crash of the server that lost a claim: the step that it interrupted
    /// may begin late.
    pub(crate) async fn never_went_back(&self) {
        for (id, walked) in self.walked().await {
            assert!(
                walked.is_sorted(),
                "instance {id} ran a committed step again: {walked:?}"
            );
        }
    }

    /// The rounds of each instance, in the order in which their runs began.
    async fn walked(&self) -> HashMap<i64, Vec<i32>> {
        let mut walked: HashMap<i64, Vec<i32>> = HashMap::new();
        for run in self.runs().await {
            walked.entry(run.instance).or_default().push(run.round);
        }
        walked
    }
}

/// Inserts `count` trails of `rounds` steps.
pub(crate) async fn insert_trails(client: &Client, url: &str, count: usize, rounds: u32) -> Vec<InstanceId> {
    let inserts = (0..count).map(|_| Trail::insert(url, rounds));
    let inserted = client.insert_all(inserts).await.expect("inserted");
    inserted.into_iter().map(durable_core::Inserted::id).collect()
}
