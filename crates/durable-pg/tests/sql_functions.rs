//! The documented SQL functions, called as psql and a trigger call them: plain text over the simple protocol, without
//! the schema in the search path. The statements of the guide about them are run here.

use std::time::Duration;

use durable_core::{Client, Context, Engine, Insert, InstanceId, Machine, StepResult, await_signal, done};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use sqlx::{Executor as _, PgPool, Row as _};

const LIMIT: Duration = Duration::from_secs(60);

/// The statements of the guide, block by block.
fn guide() -> Vec<&'static str> {
    let page = include_str!("../../../docs/guides/sql.md");
    let blocks = page.split("```sql\n").skip(1);
    blocks.filter_map(|block| block.split("```").next()).collect()
}

/// Waits for its payment.
#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderStep {
    Place,
    Ship,
}

impl Machine for Order {
    const NAME: &'static str = "order";
    type Step = OrderStep;
    type Result = String;

    fn first_step() -> OrderStep {
        OrderStep::Place
    }

    async fn step(self, step: OrderStep, context: &Context) -> StepResult<Self> {
        match step {
            OrderStep::Place => await_signal("paid", OrderStep::Ship, self).ok(),
            OrderStep::Ship => {
                let cents: u64 = context.signal("paid")?;
                done(format!("{} for {cents}", self.item)).ok()
            }
        }
    }
}

struct Scene {
    _database: TestDatabase,
    pool: PgPool,
    client: Client,
    engine: Engine,
}

impl Scene {
    async fn new() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        let engine = Engine::builder(store.clone())
            .queue("default")
            .machine::<Order>()
            .poll_interval(Duration::from_millis(20))
            .start()
            .await
            .expect("started");
        let client = Client::new(store);
        // The functions know the machines that a worker has served, or that were inserted, once.
        let first = Order {
            item: "lamp".to_owned(),
        };
        client.insert(Insert::machine(first)).await.expect("inserted");
        Self {
            pool: database.pool(2).await.expect("a pool"),
            client,
            engine,
            _database: database,
        }
    }

    async fn run(&self, text: &'static str) -> Result<sqlx::postgres::PgRow, sqlx::Error> {
        self.pool.fetch_one(sqlx::raw_sql(text)).await
    }

    async fn result(&self, id: i64) -> String {
        let id = InstanceId::new(id);
        self.client.result(id, LIMIT).await.expect("done")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_statements_of_the_guide_run_as_they_stand() {
    // contract: INS-6
    let scene = Scene::new().await;
    scene.pool.execute(sqlx::raw_sql(guide()[0])).await.expect("run");
    let row = scene
        .run("SELECT max(id) FROM durable.instances WHERE correlation_key = 'order-chair'")
        .await
        .expect("read");
    assert_eq!(scene.result(row.get(0)).await, "chair for 4200");
    scene.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_inserts_and_signals() {
    // contract: INS-6, SIG-1, ID-1
    const INSERT: &str = r#"
        SELECT id, duplicate
        FROM durable.insert_instance('order', '{"item": "chair"}', step => 'place', correlation_key => 'order-7')
    "#;
    let scene = Scene::new().await;
    let row = scene.run(INSERT).await.expect("inserted");
    let (id, duplicate): (i64, bool) = (row.get(0), row.get(1));
    assert!(!duplicate);
    let row = scene.run(INSERT).await.expect("answered");
    assert_eq!((row.get::<i64, _>(0), row.get::<bool, _>(1)), (id, true));

    for (text, sent) in [
        (
            "SELECT durable.send_signal_to_key('order-8', 'paid', '4200')",
            false,
        ),
        ("SELECT durable.send_signal(999, 'paid', '4200')", false),
        (
            "SELECT durable.send_signal_to_key('order-7', 'paid', '4200', 'payment-1')",
            true,
        ),
    ] {
        let row = scene.run(text).await.expect("answered");
        assert_eq!(row.get::<bool, _>(0), sent, "{text}");
    }
    assert_eq!(scene.result(id).await, "chair for 4200");
    let row = scene
        .run("SELECT durable.send_signal_to_key('order-7', 'paid')")
        .await;
    assert!(!row.expect("answered").get::<bool, _>(0), "it has ended");
    scene.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_of_another_schema_inserts_and_signals_exactly_if_its_transaction_commits() {
    // contract: INS-6, INS-2, SIG-1
    let scene = Scene::new().await;
    scene
        .pool
        .execute(sqlx::raw_sql(guide()[1]))
        .await
        .expect("created");
    for end in ["ROLLBACK", "COMMIT"] {
        let text =
            format!("BEGIN; SET LOCAL search_path = shop; INSERT INTO orders (item) VALUES ('desk'); {end}");
        scene
            .pool
            .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text)))
            .await
            .expect("run");
    }
    let row = scene
        .run("SELECT array_agg(instance_id) FROM shop.orders")
        .await
        .expect("read");
    let ids: Vec<i64> = row.get(0);
    assert_eq!(ids.len(), 1);
    let row = scene
        .run("SELECT count(*) FROM durable.instances")
        .await
        .expect("read");
    assert_eq!(row.get::<i64, _>(0), 2, "what was rolled back is not there");
    scene
        .run("INSERT INTO shop.payments (order_id, cents) SELECT id, 900 FROM shop.orders RETURNING order_id")
        .await
        .expect("paid");
    assert_eq!(scene.result(ids[0]).await, "desk for 900");
    scene.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_out_of_range_is_refused_before_anything_is_written() {
    // contract: INS-6, INS-1
    let scene = Scene::new().await;
    for (text, says) in [
        (
            "SELECT durable.insert_instance('ordr', '{}')",
            "machine ordr version 1 in queue default",
        ),
        ("SELECT durable.insert_instance('order', NULL)", "state is NULL"),
        (
            "SELECT durable.insert_instance('order', '{}', step => '')",
            "step is empty",
        ),
        (
            "SELECT durable.insert_instance('order', '{}', run_at => now() + interval '101 years')",
            "run_at lies more than 100 years away",
        ),
        (
            "SELECT durable.insert_instance('order', '{}', correlation_key => repeat('x', 256))",
            "correlation key has 256 bytes",
        ),
        (
            "SELECT durable.send_signal(1, E'a\\nb')",
            "the signal name holds a control character",
        ),
        (
            "SELECT durable.send_signal(1, 'paid', deduplication_key => '')",
            "the deduplication key is empty",
        ),
    ] {
        let error = scene.run(text).await.expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let row = scene
        .run("SELECT count(*) FROM durable.instances")
        .await
        .expect("read");
    assert_eq!(row.get::<i64, _>(0), 1);
    scene.engine.shutdown().await;
}
