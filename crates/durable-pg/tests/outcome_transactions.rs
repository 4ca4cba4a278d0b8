//! Steps that commit writes of their own with their outcome, on a real server: both or neither.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use durable_core::{
    Client, Context, Engine, Insert, InstanceId, Machine, Settled, StepResult, Store, done, with_transaction,
};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::proxy::{Cut, Proxy};

const LIMIT: Duration = Duration::from_secs(60);

/// What goes wrong the first time that the step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fault {
    Nothing,
    /// A constraint that is checked at the commit.
    Deferred,
    /// A statement of the step failed, and the step did not look.
    Aborted,
    /// The session of the transaction is ended by the server.
    SessionEnded,
    /// The claim is taken back while the step runs.
    ClaimLost,
    /// The instance is cancelled while the step runs.
    Cancelled,
}

/// Writes one row, in a transaction that is committed with its outcome.
#[derive(Serialize, Deserialize)]
struct Transfer {
    store_url: String,
    /// Where the transaction is opened.
    url: String,
    fault: Fault,
    serializable: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TransferStep {
    Write,
}

/// Which databases a step has run on, one entry for each run.
static RUNS: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

fn runs_of(url: &str) -> usize {
    let runs = RUNS.lock().expect("whole");
    runs.iter().filter(|of| *of == url).count()
}

/// Gives back everything that is claimed, as if the lease of its worker had ended.
async fn lose_claims(store: &PgStore, pool: &PgPool) {
    let claims: Vec<(i64, i64)> = sqlx::query_as("SELECT worker_id, number FROM durable.claims")
        .fetch_all(pool)
        .await
        .expect("read");
    for (worker, number) in claims {
        let number = durable_core::ClaimNumber::new(number);
        store
            .release(durable_core::WorkerId::new(worker), vec![number])
            .await
            .expect("released");
    }
}

impl Machine for Transfer {
    const NAME: &'static str = "transfer";
    type Step = TransferStep;
    type Result = usize;

    fn first_step() -> TransferStep {
        TransferStep::Write
    }

    async fn step(self, _step: TransferStep, context: &Context) -> StepResult<Self> {
        RUNS.lock().expect("whole").push(self.store_url.clone());
        let run = runs_of(&self.store_url);
        let fault = if run == 1 { self.fault } else { Fault::Nothing };
        let store = PgStore::connect(&self.store_url).await?;
        let pool = PgPoolOptions::new().max_connections(2).connect(&self.url).await?;
        let mut transaction = pool.begin().await?;
        if self.serializable {
            sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                .execute(&mut *transaction)
                .await?;
        }
        let copies = if fault == Fault::Deferred { 2 } else { 1 };
        for _ in 0..copies {
            sqlx::query("INSERT INTO transfers (instance_id) VALUES ($1)")
                .bind(context.id().get())
                .execute(&mut *transaction)
                .await?;
        }
        match fault {
            Fault::Nothing | Fault::Deferred => {}
            Fault::Aborted => {
                let failed = sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await;
                assert!(failed.is_err());
            }
            Fault::SessionEnded => {
                let session: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
                    .fetch_one(&mut *transaction)
                    .await?;
                sqlx::query("SELECT pg_terminate_backend($1, 60000)")
                    .bind(session)
                    .execute(&pool)
                    .await?;
            }
            Fault::ClaimLost => lose_claims(&store, &pool).await,
            Fault::Cancelled => {
                Client::new(store.clone())
                    .cancel(context.id(), "not wanted")
                    .await?;
            }
        }
        with_transaction(store.attach(transaction), done(run).ok())
    }
}

struct Scene {
    database: TestDatabase,
    pool: PgPool,
    engine: Engine,
}

impl Scene {
    async fn new() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        let pool = database.pool(2).await.expect("a pool");
        sqlx::raw_sql("CREATE TABLE transfers (instance_id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            .execute(&pool)
            .await
            .expect("created");
        let engine = Engine::builder(store)
            .queue("default")
            .machine::<Transfer>()
            .poll_interval(Duration::from_millis(20))
            .start()
            .await
            .expect("started");
        Self {
            database,
            pool,
            engine,
        }
    }

    /// Runs one transfer to its end, whose transaction is opened at an address of this database.
    async fn transfer(&self, url: &str, fault: Fault, serializable: bool) -> (InstanceId, Settled<usize>) {
        let transfer = Transfer {
            store_url: self.database.url(),
            url: url.to_owned(),
            fault,
            serializable,
        };
        let client = self.engine.client();
        let id = client
            .insert(Insert::machine(transfer))
            .await
            .expect("inserted")
            .id();
        let settled = client.settled(id, LIMIT).await.expect("settled");
        (id, settled)
    }

    async fn written(&self) -> Vec<i64> {
        sqlx::query_scalar("SELECT instance_id FROM transfers")
            .fetch_all(&self.pool)
            .await
            .expect("read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_step_wrote_and_its_outcome_stand_together() {
    // contract: OPS-8
    for serializable in [false, true] {
        let scene = Scene::new().await;
        let url = scene.database.url();
        let (id, settled) = scene.transfer(&url, Fault::Nothing, serializable).await;
        assert!(matches!(settled, Settled::Done(1)), "{settled:?}");
        assert_eq!(scene.written().await, [id.get()]);
        scene.engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_lost_session_or_claim_the_step_runs_again_and_has_written_once() {
    // contract: OPS-8, CLAIM-4
    for fault in [Fault::SessionEnded, Fault::ClaimLost] {
        let scene = Scene::new().await;
        let url = scene.database.url();
        let (id, settled) = scene.transfer(&url, fault, false).await;
        assert!(matches!(settled, Settled::Done(2)), "{fault:?}: {settled:?}");
        assert_eq!(scene.written().await, [id.get()], "{fault:?}");
        scene.engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_cannot_be_committed_leaves_nothing_and_goes_to_the_error_handler() {
    // contract: OPS-8, OUT-2
    for fault in [Fault::Deferred, Fault::Aborted] {
        let scene = Scene::new().await;
        let url = scene.database.url();
        let (_, settled) = scene.transfer(&url, fault, false).await;
        assert!(matches!(settled, Settled::Failed(_)), "{fault:?}: {settled:?}");
        assert_eq!(scene.written().await, [0; 0], "{fault:?}");
        assert_eq!(runs_of(&url), 1, "it would end the same");
        scene.engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_step_has_written_nothing() {
    // contract: OPS-8, CANCEL-1
    let scene = Scene::new().await;
    let url = scene.database.url();
    let (_, settled) = scene.transfer(&url, Fault::Cancelled, false).await;
    assert!(matches!(settled, Settled::Cancelled(_)), "{settled:?}");
    assert_eq!(scene.written().await, [0; 0]);
    scene.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_asked_about_and_nothing_is_written_twice() {
    // contract: OPS-8, OUT-3
    for (cut, runs) in [(Cut::After, 1), (Cut::Before, 2)] {
        let scene = Scene::new().await;
        let proxy = Proxy::start(&scene.database).await;
        proxy.cut("COMMIT", cut);
        let (id, settled) = scene.transfer(proxy.url(), Fault::Nothing, false).await;
        assert!(
            matches!(settled, Settled::Done(run) if run == runs),
            "{cut:?}: {settled:?}"
        );
        assert_eq!(scene.written().await, [id.get()], "{cut:?}");
        assert_eq!(runs_of(&scene.database.url()), runs, "{cut:?}");
        scene.engine.shutdown().await;
    }
}
