//! Connections that are cut: before a statement reaches the server, and after it was committed.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::Store;
use durable_core::{Client, Context, Engine, Insert, InsertError, Inserted, Job, JobError, StoreError};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::proxy::{Cut, Proxy};
use crate::trail::{Ledger, Trail, insert_trails};

const LIMIT: Duration = Duration::from_secs(60);

/// Parts of the texts of the store's statements.
const CLAIM: &str = "Claims up to";
const COMMIT: &str = "Commits outcomes of one worker";
const INSERT: &str = "Inserts a batch: all of it with";

struct Fixture {
    proxy: Proxy,
    /// Past the proxy.
    client: Client,
    ledger: Ledger,
    url: String,
    _database: TestDatabase,
}

impl Fixture {
    async fn new() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let proxy = Proxy::start(&database).await;
        let direct = PgStore::connect(&database.url()).await.expect("connected");
        Self {
            proxy,
            client: Client::new(direct),
            ledger: Ledger::create(&database).await,
            url: database.url(),
            _database: database,
        }
    }

    async fn store(&self) -> PgStore {
        PgStore::connect(self.proxy.url()).await.expect("connected")
    }

    async fn engine(&self) -> Engine {
        Engine::builder(self.store().await)
            .queue("default")
            .machine::<Trail>()
            .lease(Duration::from_secs(2))
            .poll_interval(Duration::from_millis(100))
            .start()
            .await
            .expect("started")
    }

    async fn open_claims(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM durable.claims")
            .fetch_one(self.ledger.pool())
            .await
            .expect("read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_was_lost_comes_back_although_its_worker_lives_on() {
    // contract: CLAIM-6
    for cut in [Cut::After, Cut::Before] {
        let fixture = Fixture::new().await;
        let ids = insert_trails(&fixture.client, &fixture.url, 5, 1).await;
        fixture.proxy.cut(CLAIM, cut);
        let engine = fixture.engine().await;
        let worker = engine.worker();
        fixture.proxy.was_cut().await;
        for id in &ids {
            fixture.client.result::<u32>(*id, LIMIT).await.expect("done");
            assert_eq!(
                fixture.ledger.rounds(*id).await,
                [(0, 0)],
                "{cut:?}: no attempt was counted"
            );
        }
        assert_eq!(engine.worker(), worker, "the worker never lost its lease");
        engine.shutdown().await;
        assert_eq!(fixture.open_claims().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_stands_once_and_nothing_runs_twice() {
    // contract: OUT-3, CORE-2
    for cut in [Cut::After, Cut::Before] {
        let fixture = Fixture::new().await;
        let engine = fixture.engine().await;
        for _ in 0..3 {
            fixture.proxy.cut(COMMIT, cut);
            let id = insert_trails(&fixture.client, &fixture.url, 1, 2).await.remove(0);
            fixture.client.result::<u32>(id, LIMIT).await.expect("done");
            fixture.proxy.was_cut().await;
            assert_eq!(fixture.ledger.rounds(id).await, [(0, 0), (1, 0)], "{cut:?}");
        }
        engine.shutdown().await;
        assert_eq!(fixture.open_claims().await, 0);
    }
}

#[derive(Serialize, Deserialize)]
struct Idle;

impl Job for Idle {
    const NAME: &'static str = "idle";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_insert_whose_answer_was_lost_says_so_and_its_key_makes_a_second_try_safe() {
    // contract: ID-3, INS-3
    let fixture = Fixture::new().await;
    let through = Client::new(fixture.store().await);
    let insert = |key: &'static str| through.insert(Insert::job(Idle).correlation_key(key));
    let unknown = |answer: &Result<Inserted, InsertError>| {
        matches!(answer, Err(InsertError::Store(StoreError::Unknown { .. })))
    };
    fixture.proxy.cut(INSERT, Cut::After);
    let lost = insert("after").await;
    assert!(unknown(&lost), "{lost:?}");
    let again = insert("after").await.expect("answered");
    let holder = fixture.client.find("after").await.expect("read");
    assert_eq!(
        (again.is_duplicate(), Some(again.id())),
        (true, holder),
        "the first try was committed"
    );

    fixture.proxy.cut(INSERT, Cut::Before);
    let lost = insert("before").await;
    assert!(unknown(&lost), "{lost:?}");
    assert!(
        !insert("before").await.expect("answered").is_duplicate(),
        "the first try did nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_cannot_be_had_is_no_doubt_about_what_was_committed() {
    // contract: OUT-3
    let fixture = Fixture::new().await;
    let builder = PgStore::builder(fixture.proxy.url())
        .expect("a url")
        .max_connections(1);
    let store: Arc<dyn Store> = builder.connect().await.expect("connected").into();
    // The only connection of the pool is cut, and no new one can be opened.
    fixture.proxy.cut(INSERT, Cut::Before);
    let through = Client::new(Arc::clone(&store));
    assert!(through.insert(Insert::job(Idle)).await.is_err());
    fixture.proxy.refuse(true);
    let answer = through.insert(Insert::job(Idle)).await;
    assert!(
        matches!(answer, Err(InsertError::Store(StoreError::Transient { .. }))),
        "nothing was sent: {answer:?}"
    );
    let answer = store.reap(1).await;
    assert!(matches!(answer, Err(StoreError::Transient { .. })), "{answer:?}");
    fixture.proxy.refuse(false);
    through
        .insert(Insert::job(Idle))
        .await
        .expect("the pool recovers");
}
