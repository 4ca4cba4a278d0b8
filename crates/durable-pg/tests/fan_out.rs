//! Wide and deep: many children of one parent, and a tree that outlives a worker.

use std::time::Duration;

use durable_core::{Client, Context, Engine, Insert, Machine, StepResult, done, schedule_children};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use crate::counted::Counted;
use crate::processes::Worker;

/// Far more than either test takes where it may take all of two cores: only a hang is to end it.
const LIMIT: Duration = Duration::from_secs(600);

/// Grows branches below itself, and its result is how many instances there are from it downwards.
#[derive(Serialize, Deserialize)]
pub(crate) struct Branch {
    /// How many levels are below this one.
    below: u32,
    width: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BranchStep {
    Grow,
    Count,
}

impl Machine for Branch {
    const NAME: &'static str = "branch";
    type Step = BranchStep;
    type Result = u64;

    fn first_step() -> BranchStep {
        BranchStep::Grow
    }

    async fn step(self, step: BranchStep, context: &Context) -> StepResult<Self> {
        match step {
            BranchStep::Grow if self.below == 0 => done(1).ok(),
            BranchStep::Grow => {
                let (below, width) = (self.below - 1, self.width);
                let children = (0..width).map(|_| Insert::machine(Self { below, width }));
                schedule_children(BranchStep::Count, self).children(children).ok()
            }
            BranchStep::Count => {
                let mut count = 1;
                for child in context.children() {
                    count += child.done::<u64>()?;
                }
                done(count).ok()
            }
        }
    }
}

async fn number(pool: &PgPool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.expect(query)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_children_join_and_a_commit_updates_their_parent_at_most_once() {
    // contract: CHILD-1, CHILD-3
    const CHILDREN: u32 = 10_000;
    let counted = Counted::new().await;
    let pool = counted.database.pool(1).await.expect("a pool");
    sqlx::raw_sql(
        "CREATE TABLE countdowns (transaction bigint, woke boolean);
         CREATE FUNCTION count_down() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO public.countdowns VALUES (txid_current(), NEW.status = 'active');
             RETURN NULL;
         END $$;
         CREATE TRIGGER count_down AFTER UPDATE ON durable.instances FOR EACH ROW
             WHEN (OLD.status = 'awaiting_children' AND NEW.children_left < OLD.children_left)
             EXECUTE FUNCTION count_down()",
    )
    .execute(&pool)
    .await
    .expect("watched");
    let engine = Engine::builder(counted.store.clone())
        .queue("default")
        .machine::<Branch>()
        .start()
        .await
        .expect("started");
    let client = engine.client();
    let root = Insert::machine(Branch {
        below: 1,
        width: CHILDREN,
    });
    let root = client.insert(root).await.expect("inserted").id();
    let all: u64 = client.result(root, LIMIT).await.expect("joined");
    engine.shutdown().await;
    assert_eq!(all, u64::from(CHILDREN) + 1);
    let updates = number(&pool, "SELECT count(*) FROM countdowns").await;
    let commits = number(&pool, "SELECT count(DISTINCT transaction) FROM countdowns").await;
    assert_eq!(updates, commits, "once per commit");
    assert!(
        updates * 10 < i64::from(CHILDREN),
        "{updates} updates of the parent: its children ended alone"
    );
    assert_eq!(
        number(&pool, "SELECT count(*) FROM countdowns WHERE woke").await,
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_five_deep_and_ten_wide_survives_the_death_of_one_of_its_two_workers() {
    // contract: CHILD-1, CHILD-3, CORE-2, LEASE-2
    const TREE: i64 = 111_111;
    const LEASE: Duration = Duration::from_secs(5);
    let database = TestDatabase::new().await.expect("a database");
    let store = PgStore::connect(&database.url()).await.expect("connected");
    let client = Client::new(store);
    let pool = database.pool(1).await.expect("a pool");
    let mut doomed = Worker::start(&database.url(), LEASE, true).await;
    let survivor = Worker::start(&database.url(), LEASE, true).await;
    let root = Insert::machine(Branch { below: 5, width: 10 });
    let root = client.insert(root).await.expect("inserted").id();
    let terminal = "SELECT coalesce(sum(instances), 0)::bigint FROM durable.finished";
    let middle = async {
        while number(&pool, terminal).await < TREE / 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, middle)
        .await
        .expect("it gets to the middle");
    doomed.kill();
    let before = number(&pool, terminal).await;
    assert!(before < TREE, "killed too late: {before} were terminal");
    let all: i64 = client.result(root, LIMIT).await.expect("joined");
    survivor.end().await;
    assert_eq!(all, TREE, "each child counted once");
    let instances = number(&pool, "SELECT count(*) FROM durable.instances").await;
    let ended = number(
        &pool,
        "SELECT count(*) FROM durable.instances WHERE status = 'done'",
    )
    .await;
    assert_eq!((instances, ended), (TREE, TREE), "none twice, none left");
    assert_eq!(number(&pool, terminal).await, TREE);
    assert_eq!(number(&pool, "SELECT count(*) FROM durable.claims").await, 0);
}
