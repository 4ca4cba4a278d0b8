//! Small inserts of many callers share a batch; none fails for another.

use std::sync::Arc;

use durable_core::store::NewInstance;
use durable_core::{Context, Insert, Inserted, Job, JobError, Json, Store, StoreError};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Noop;

impl Job for Noop {
    const NAME: &'static str = "noop";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// How many lost races were counted on this thread.
fn races(snapshotter: &Snapshotter) -> u64 {
    let mut races = 0;
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        if let (durable_pg::INSERT_RACES, DebugValue::Counter(count)) = (key.key().name(), value) {
            races += count;
        }
    }
    races
}

#[tokio::test]
async fn the_loser_of_a_race_for_a_key_is_a_duplicate_of_the_winner_and_counted() {
    // contract: CORE-5, ID-3
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let database = TestDatabase::new().await.expect("a database");
    let store = PgStore::connect(&database.url()).await.expect("connected");
    let keyed = || Insert::job(Noop).correlation_key("order-7");
    let pool = database.pool(2).await.expect("a pool");
    let mut winner = pool.begin().await.expect("begun");
    let won = store
        .in_transaction(&mut winner)
        .insert(keyed())
        .await
        .expect("inserted");
    let loser = tokio::spawn({
        let store = store.clone();
        async move { store.insert(vec![keyed().encode().expect("valid")]).await }
    });
    // The constraint makes the second insert wait for the first transaction: seen in the server's own list.
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits)
        .fetch_one(&pool)
        .await
        .expect("read")
        == 0
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(races(&snapshotter), 0);
    winner.commit().await.expect("committed");
    let lost = loser.await.expect("no panic").expect("answered");
    assert_eq!(lost, [Inserted::Duplicate(won.id())]);
    assert_eq!(races(&snapshotter), 1);
}

fn entry() -> NewInstance {
    Insert::job(Noop).encode().expect("valid")
}

/// Inserts each list at once, from a task of its own.
async fn insert_at_once(
    store: &Arc<dyn Store>,
    callers: Vec<Vec<NewInstance>>,
) -> Vec<Result<Vec<Inserted>, StoreError>> {
    let tasks: Vec<_> = callers
        .into_iter()
        .map(|entries| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.insert(entries).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no panic"));
    }
    answers
}

#[tokio::test]
async fn each_of_many_callers_gets_its_own_answer_from_few_transactions() {
    // contract: INS-3
    let database = TestDatabase::new().await.expect("a database");
    let store: Arc<dyn Store> = PgStore::connect(&database.url()).await.expect("connected").into();
    store.insert(vec![entry()]).await.expect("inserted");
    let callers = (0..300).map(|caller| vec![entry(); caller % 3 + 1]).collect();
    let answers = insert_at_once(&store, callers).await;
    let mut ids: Vec<_> = Vec::new();
    for (caller, answer) in answers.into_iter().enumerate() {
        let answer = answer.expect("inserted");
        assert_eq!(answer.len(), caller % 3 + 1, "caller {caller}");
        ids.extend(answer.into_iter().map(Inserted::id));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 600, "nobody got the id of another");
    let pool = database.pool(1).await.expect("a pool");
    let (rows, transactions): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT xmin::text) FROM durable.instances")
            .fetch_one(&pool)
            .await
            .expect("counted");
    assert_eq!(rows, 601);
    assert!(transactions < 100, "{transactions} transactions for 301 inserts");
}

#[tokio::test]
async fn a_refused_entry_fails_its_own_caller_only() {
    // contract: INS-3, OUT-2
    let database = TestDatabase::new().await.expect("a database");
    let store: Arc<dyn Store> = PgStore::connect(&database.url()).await.expect("connected").into();
    let bad = NewInstance {
        state: Json::from_store("{not json".to_owned()),
        ..entry()
    };
    let callers = (0..20)
        .map(|caller| vec![if caller == 7 { bad.clone() } else { entry() }])
        .collect();
    for (caller, answer) in insert_at_once(&store, callers).await.into_iter().enumerate() {
        match answer {
            Err(StoreError::Refused { .. }) => assert_eq!(caller, 7),
            answer => assert!(caller != 7 && answer.is_ok(), "caller {caller}: {answer:?}"),
        }
    }
}
