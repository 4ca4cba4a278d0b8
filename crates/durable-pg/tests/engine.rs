//! The whole path on a real Postgres: insert, claim, run, commit, result.

use std::sync::Arc;
use std::time::Duration;

use durable_core::{
    Context, Engine, Insert, Job, JobError, Machine, Status, StepResult, Store, done, next, retry,
};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderStep {
    Charge,
    Ship,
}

impl Machine for Order {
    const NAME: &'static str = "order";
    type Step = OrderStep;
    type Result = u64;

    fn first_step() -> OrderStep {
        OrderStep::Charge
    }

    async fn step(self, step: OrderStep, context: &Context) -> StepResult<Self> {
        match step {
            OrderStep::Charge if context.attempt() == 0 && self.number.is_multiple_of(10) => {
                retry(self).after(Duration::from_millis(20)).ok()
            }
            OrderStep::Charge => next(OrderStep::Ship, self).ok(),
            OrderStep::Ship => done(self.number).ok(),
        }
    }
}

async fn store(database: &TestDatabase) -> Arc<dyn Store> {
    PgStore::connect(&database.url()).await.expect("connected").into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_orders_run_to_their_results() {
    // contract: CORE-1, FSM-1, FSM-3, CLAIM-1, OUT-1
    let database = TestDatabase::new().await.expect("a database");
    let engine = Engine::builder(store(&database).await)
        .queue("default")
        .machine::<Order>()
        .start()
        .await
        .expect("started");
    let client = engine.client().clone();
    let inserted = client
        .insert_all((0..200).map(|number| Insert::machine(Order { number })))
        .await
        .expect("inserted");
    for (number, inserted) in (0_u64..).zip(&inserted) {
        assert_eq!(
            client
                .result::<u64>(inserted.id(), LIMIT)
                .await
                .expect("a result"),
            number
        );
    }
    engine.shutdown().await;
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM durable.ready) + (SELECT count(*) FROM durable.scheduled) \
         + (SELECT count(*) FROM durable.claims) + (SELECT count(*) FROM durable.workers)",
    )
    .fetch_one(&database.pool(1).await.expect("a pool"))
    .await
    .expect("counted");
    assert_eq!(
        left, 0,
        "no place row, claim or worker is left behind by a clean shutdown"
    );
}

#[derive(Serialize, Deserialize)]
struct Later;

impl Job for Later {
    const NAME: &'static str = "later";
    type Output = serde_json::Value;

    async fn perform(&self, _context: &Context) -> Result<serde_json::Value, JobError> {
        Ok(serde_json::Value::Null)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_uses_the_real_claim_and_commit() {
    // contract: OUT-5
    let database = TestDatabase::new().await.expect("a database");
    let store = store(&database).await;
    let client = durable_core::Client::new(Arc::clone(&store));
    client
        .insert(Insert::machine(Order { number: 10 }))
        .await
        .expect("inserted");
    let job = client
        .insert(Insert::job(Later).run_in(durable_core::MAX_DURATION))
        .await
        .expect("inserted");
    let tally = Engine::builder(Arc::clone(&store))
        .queue("default")
        .machine::<Order>()
        .job::<Later>()
        .drain()
        .await
        .expect("drained");
    assert_eq!(
        (tally.count("retry"), tally.count("next"), tally.count("done")),
        (1, 1, 2)
    );
    let snapshot = client.snapshot(job.id()).await.expect("read").expect("there");
    assert_eq!(snapshot.status, Status::Done);
}
