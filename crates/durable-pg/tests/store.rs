//! The statements against a real Postgres: guards, order, locks, recovery.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    ClaimRequest, Commit, CommitFate, CommitRequest, NewInstance, NewWorker, Resolution, Transition,
};
use durable_core::{
    ClaimNumber, Context, Fence, Insert, Inserted, InstanceId, Job, JobError, Json, QueueName, Store,
    StoreError, WorkerId,
};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct Noop {
    pub(crate) text: String,
}

impl Job for Noop {
    const NAME: &'static str = "noop";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

fn noop() -> Insert<()> {
    Insert::job(Noop { text: String::new() })
}

struct Fixture {
    database: TestDatabase,
    store: PgStore,
    worker: WorkerId,
}

impl Fixture {
    async fn new() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        let worker = register(&store, Duration::from_secs(3600)).await;
        Self {
            database,
            store,
            worker,
        }
    }

    async fn insert(&self, entries: Vec<Insert<()>>) -> Vec<Inserted> {
        let entries: Vec<NewInstance> = entries
            .into_iter()
            .map(|entry| entry.encode().expect("valid"))
            .collect();
        self.store.insert(entries).await.expect("inserted")
    }

    async fn claim(&self, number: i64, limit: usize) -> Vec<(InstanceId, Fence)> {
        claim(&self.store, self.worker, number, limit)
            .await
            .expect("claimed")
    }

    async fn commit(&self, claimed: &[(InstanceId, Fence)], transition: Transition) -> Vec<CommitFate> {
        self.commit_and_close(claimed, transition, Vec::new()).await
    }

    async fn commit_and_close(
        &self,
        claimed: &[(InstanceId, Fence)],
        transition: Transition,
        closed: Vec<ClaimNumber>,
    ) -> Vec<CommitFate> {
        let commits: Vec<Commit> = claimed
            .iter()
            .map(|&(id, fence)| Commit {
                id,
                fence,
                parent: None,
                received: 0,
                transition: transition.clone(),
                limits: None,
            })
            .collect();
        self.store
            .commit(CommitRequest::new(self.worker, commits, closed))
            .await
            .expect("answered")
            .fates
    }
}

async fn register(store: &PgStore, lease: Duration) -> WorkerId {
    let worker = NewWorker {
        name: "test".to_owned(),
        lease,
        process: None,
        roles: durable_core::store::Roles::ALL,
    };
    store.register(worker).await.expect("registered")
}

async fn claim(
    store: &PgStore,
    worker: WorkerId,
    number: i64,
    limit: usize,
) -> Result<Vec<(InstanceId, Fence)>, StoreError> {
    let encoded = noop().encode().expect("valid");
    let request = ClaimRequest {
        worker,
        number: ClaimNumber::new(number),
        queue: QueueName::new("default").expect("valid"),
        machines: Arc::new([encoded.machine]),
        limit,
    };
    let claimed = store.claim(request).await?;
    Ok(claimed
        .instances
        .iter()
        .map(|instance| (instance.id, instance.fence))
        .collect())
}

fn finish() -> Transition {
    Transition::Done {
        result: Json::encode(&()).expect("valid"),
    }
}

#[tokio::test]
async fn a_row_that_a_caller_holds_is_set_aside_and_the_others_commit() {
    // contract: OUT-6, LEASE-5
    let fixture = Fixture::new().await;
    fixture.insert(vec![noop(), noop()]).await;
    let claimed = fixture.claim(1, 2).await;
    let pool = fixture.database.pool(1).await.expect("a pool");
    let mut caller = pool.begin().await.expect("begun");
    sqlx::query("SELECT FROM durable.instances WHERE id = $1 FOR NO KEY UPDATE")
        .bind(claimed[0].0.get())
        .execute(&mut *caller)
        .await
        .expect("locked");
    let closed = vec![claimed[0].1.claim];
    assert_eq!(
        fixture.commit_and_close(&claimed, finish(), closed).await,
        [CommitFate::Locked, CommitFate::Committed]
    );
    caller.rollback().await.expect("rolled back");
    assert_eq!(
        fixture.commit(&claimed[..1], finish()).await,
        [CommitFate::Committed],
        "its claim is kept, even if it was to be closed"
    );
}

#[tokio::test]
async fn what_was_taken_back_from_a_claim_that_is_still_there_resolves_as_lost() {
    // contract: OUT-3, LEASE-5
    let fixture = Fixture::new().await;
    fixture.insert(vec![noop(), noop()]).await;
    let claimed = fixture.claim(1, 2).await;
    let pool = fixture.database.pool(1).await.expect("a pool");
    let mut caller = pool.begin().await.expect("begun");
    sqlx::query("SELECT FROM durable.instances WHERE id = $1 FOR NO KEY UPDATE")
        .bind(claimed[0].0.get())
        .execute(&mut *caller)
        .await
        .expect("locked");
    let number = claimed[0].1.claim;
    fixture
        .store
        .release(fixture.worker, vec![number])
        .await
        .expect("released");
    let resolved = fixture.store.resolve(fixture.worker, claimed.clone()).await;
    assert_eq!(
        resolved.expect("resolved"),
        [Resolution::NotCommitted, Resolution::Lost],
        "the caller's row stays behind in the claim, the other one is runnable again"
    );
    caller.rollback().await.expect("rolled back");
    assert_eq!(
        fixture.commit(&claimed, finish()).await,
        [CommitFate::Committed, CommitFate::Stale]
    );
}

#[tokio::test]
async fn an_insert_in_a_callers_transaction_exists_exactly_if_it_commits() {
    // contract: INS-2, INS-5
    let fixture = Fixture::new().await;
    let pool = fixture.database.pool(1).await.expect("a pool");
    let mut caller = pool.begin().await.expect("begun");
    fixture
        .store
        .in_transaction(&mut caller)
        .insert(noop())
        .await
        .expect("inserted");
    assert_eq!(fixture.claim(1, 10).await.len(), 0, "not before the commit");
    caller.rollback().await.expect("rolled back");
    assert_eq!(fixture.claim(2, 10).await.len(), 0);
    let mut caller = pool.begin().await.expect("begun");
    let inserted = fixture
        .store
        .in_transaction(&mut caller)
        .insert(noop())
        .await
        .expect("inserted");
    caller.commit().await.expect("committed");
    assert_eq!(fixture.claim(3, 10).await[0].0, inserted.id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_insert_the_same_keys_in_opposite_orders_never_deadlock() {
    // contract: INS-4, ID-3
    let fixture = Fixture::new().await;
    let keys: Vec<String> = (0..50).map(|key| format!("key-{key}")).collect();
    for round in 0..10 {
        let batch = |keys: Vec<String>| -> Vec<NewInstance> {
            let entry = |key| {
                noop()
                    .correlation_key(format!("{round}-{key}"))
                    .encode()
                    .expect("valid")
            };
            keys.into_iter().map(entry).collect()
        };
        let (forward, mut backward) = (keys.clone(), keys.clone());
        backward.reverse();
        let (one, two) = tokio::join!(
            fixture.store.insert(batch(forward)),
            fixture.store.insert(batch(backward))
        );
        let new = |fates: Vec<Inserted>| fates.iter().filter(|fate| !fate.is_duplicate()).count();
        assert_eq!(
            new(one.expect("no deadlock")) + new(two.expect("no deadlock")),
            50
        );
    }
}

#[tokio::test]
async fn a_claim_takes_an_instance_that_somebody_else_has_locked() {
    // contract: CLAIM-3, OUT-6
    let fixture = Fixture::new().await;
    let inserted = fixture.insert(vec![noop(), noop()]).await;
    let pool = fixture.database.pool(2).await.expect("a pool");
    // What the insert of a row that refers to the instance takes, and what a delivery to it takes.
    let locks = [
        "SELECT FROM durable.instances WHERE id = $1 FOR KEY SHARE",
        "SELECT FROM durable.instances WHERE id = $1 FOR NO KEY UPDATE",
    ];
    let mut callers = Vec::new();
    for (lock, inserted) in locks.into_iter().zip(&inserted) {
        let mut caller = pool.begin().await.expect("begun");
        let locked = sqlx::query(lock)
            .bind(inserted.id().get())
            .execute(&mut *caller)
            .await;
        locked.expect("locked");
        callers.push(caller);
    }
    let claimed: Vec<_> = fixture.claim(1, 10).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(
        claimed,
        [inserted[0].id(), inserted[1].id()],
        "neither skipped nor waited for"
    );
}
