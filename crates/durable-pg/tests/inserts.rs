//! Small inserts of many callers share a batch; none fails for another.

use std::sync::Arc;

use durable_core::store::NewInstance;
use durable_core::{Context, Insert, Inserted, Job, JobError, Json, Store, StoreError};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
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
