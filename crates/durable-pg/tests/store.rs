//! The statements against a real Postgres: guards, order, locks, recovery.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    ClaimRequest, Commit, CommitFate, NewInstance, NewWorker, Resolution, Retention, Transition,
};
use durable_core::{
    ClaimNumber, Context, Fence, Insert, Inserted, InstanceId, Job, JobError, Json, QueueName, Scope, Status,
    Store, StoreError, WorkerId,
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
        let commits: Arc<[Commit]> = claimed
            .iter()
            .map(|&(id, fence)| Commit {
                id,
                fence,
                transition: transition.clone(),
            })
            .collect();
        self.store
            .commit(self.worker, commits, Vec::new())
            .await
            .expect("answered")
    }

    async fn status(&self, id: InstanceId) -> (Status, u32, u32) {
        let snapshot = self
            .store
            .snapshots(vec![id])
            .await
            .expect("read")
            .remove(0)
            .expect("there");
        (snapshot.status, snapshot.attempt, snapshot.crashes)
    }
}

async fn register(store: &PgStore, lease: Duration) -> WorkerId {
    let worker = NewWorker {
        name: "test".to_owned(),
        lease,
        process: None,
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
async fn a_batch_answers_in_order_and_a_key_is_taken_while_in_scope() {
    // contract: INS-1, INS-3, ID-1, ID-2, ID-3
    let fixture = Fixture::new().await;
    let key = |key: &'static str| noop().correlation_key(key);
    let first = fixture.insert(vec![key("b"), noop(), key("a"), key("b")]).await;
    assert!(!first[0].is_duplicate() && !first[1].is_duplicate() && !first[2].is_duplicate());
    assert_eq!(first[3], Inserted::Duplicate(first[0].id()));
    let second = fixture.insert(vec![key("a"), key("c")]).await;
    assert_eq!(second[0], Inserted::Duplicate(first[2].id()));
    let started = fixture
        .insert(vec![key("s").scope(Scope::UNTIL_STARTED).priority(1)])
        .await;
    let claimed = fixture.claim(1, 1).await;
    assert_eq!(claimed[0].0, started[0].id());
    let again = fixture.insert(vec![key("s").scope(Scope::UNTIL_STARTED)]).await;
    assert!(
        !again[0].is_duplicate(),
        "the key is free once the first has started"
    );
    let retry = Transition::Retry {
        state: None,
        delay: Duration::ZERO,
        failure: None,
    };
    assert_eq!(
        fixture.commit(&claimed, retry).await,
        [CommitFate::Committed],
        "no unique violation"
    );
}

#[tokio::test]
async fn a_claim_takes_by_priority_then_time_and_leaves_future_rows() {
    // contract: CLAIM-1, CLAIM-2
    let fixture = Fixture::new().await;
    let inserted = fixture
        .insert(vec![
            noop().priority(5),
            noop().priority(1).run_in(Duration::from_secs(3600)),
            noop().priority(-3),
            noop().priority(5),
        ])
        .await;
    let ids: Vec<_> = fixture.claim(1, 10).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [inserted[2].id(), inserted[0].id(), inserted[3].id()]);
    assert_eq!(fixture.status(inserted[1].id()).await.0, Status::Runnable);
    assert_eq!(fixture.status(inserted[0].id()).await.0, Status::Executing);
}

#[tokio::test]
async fn an_outcome_commits_only_while_its_claim_stands() {
    // contract: CLAIM-4, CORE-2
    let fixture = Fixture::new().await;
    fixture.insert(vec![noop(), noop()]).await;
    let claimed = fixture.claim(1, 2).await;
    let (id, fence) = claimed[0];
    let wrong = |fence| vec![(id, fence)];
    let seq = Fence {
        seq: fence.seq + 1,
        ..fence
    };
    let number = Fence {
        claim: ClaimNumber::new(9),
        ..fence
    };
    assert_eq!(fixture.commit(&wrong(seq), finish()).await, [CommitFate::Stale]);
    assert_eq!(
        fixture.commit(&wrong(number), finish()).await,
        [CommitFate::Stale]
    );
    assert_eq!(
        fixture.commit(&claimed[..1], finish()).await,
        [CommitFate::Committed]
    );
    assert_eq!(
        fixture.commit(&claimed[..1], finish()).await,
        [CommitFate::Stale],
        "a second commit changes nothing"
    );
    let outcomes = claimed.clone();
    let resolved = fixture
        .store
        .resolve(fixture.worker, outcomes)
        .await
        .expect("resolved");
    assert_eq!(resolved, [Resolution::Committed, Resolution::NotCommitted]);
    fixture
        .store
        .declare_dead(vec![fixture.worker])
        .await
        .expect("declared");
    assert!(matches!(
        claim(&fixture.store, fixture.worker, 2, 1).await,
        Err(StoreError::WorkerDead)
    ));
    while fixture.store.reap(100).await.expect("reaped").more {}
    assert_eq!(fixture.commit(&claimed[1..], finish()).await, [CommitFate::Stale]);
    assert_eq!(fixture.status(claimed[1].0).await, (Status::Runnable, 1, 1));
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
    assert_eq!(
        fixture.commit(&claimed, finish()).await,
        [CommitFate::Locked, CommitFate::Committed]
    );
    caller.rollback().await.expect("rolled back");
    assert_eq!(
        fixture.commit(&claimed[..1], finish()).await,
        [CommitFate::Committed]
    );
}

#[tokio::test]
async fn a_lost_claim_is_listed_by_the_heartbeat_and_given_back_without_an_attempt() {
    // contract: CLAIM-6, LEASE-1
    let fixture = Fixture::new().await;
    fixture.insert(vec![noop()]).await;
    let claimed = fixture.claim(7, 1).await;
    let mut heart = fixture.store.heart();
    let beat = heart
        .beat(fixture.worker, Duration::from_secs(60))
        .await
        .expect("beaten");
    let listed = ClaimNumber::new(7);
    assert_eq!(beat, durable_core::store::Beat::Alive { claims: vec![listed] });
    fixture
        .store
        .release(fixture.worker, vec![listed])
        .await
        .expect("released");
    assert_eq!(fixture.status(claimed[0].0).await, (Status::Runnable, 0, 0));
}

#[tokio::test]
async fn work_of_a_worker_whose_lease_ended_is_returned_and_a_beating_one_keeps_its_own() {
    // contract: LEASE-1, LEASE-2, LEASE-4
    let fixture = Fixture::new().await;
    let inserted = fixture.insert(vec![noop(), noop()]).await;
    fixture.claim(1, 1).await;
    let short = register(&fixture.store, Duration::from_millis(1)).await;
    claim(&fixture.store, short, 1, 1).await.expect("claimed");
    // The database decides when the lease is over; each round asks it again.
    let mut reaped = 0;
    for _ in 0..10_000 {
        reaped += fixture.store.reap(100).await.expect("reaped").instances;
        if reaped > 0 {
            break;
        }
    }
    assert_eq!(reaped, 1);
    assert_eq!(fixture.status(inserted[1].id()).await, (Status::Runnable, 1, 1));
    assert_eq!(fixture.status(inserted[0].id()).await, (Status::Executing, 0, 0));
    let beat = fixture
        .store
        .heart()
        .beat(short, Duration::from_secs(1))
        .await
        .expect("answered");
    assert_eq!(beat, durable_core::store::Beat::Dead);
}

#[tokio::test]
async fn terminal_rows_are_collected_after_their_retention_in_bounded_batches() {
    // contract: OPS-3
    let fixture = Fixture::new().await;
    fixture.insert((0..30).map(|_| noop()).collect()).await;
    for number in 1..=3 {
        let claimed = fixture.claim(number, 10).await;
        fixture.commit(&claimed, finish()).await;
    }
    let kept = fixture
        .store
        .collect(Retention::default(), 10)
        .await
        .expect("collected");
    assert_eq!(kept.instances, 0);
    let none = Retention {
        done: Duration::ZERO,
        ..Retention::default()
    };
    let first = fixture.store.collect(none, 10).await.expect("collected");
    assert_eq!((first.instances, first.more), (10, true));
    let rest = fixture.store.collect(none, 100).await.expect("collected");
    assert_eq!(rest.instances, 20);
}

#[tokio::test]
async fn a_value_that_the_database_refuses_is_told_apart() {
    // contract: OUT-2
    let fixture = Fixture::new().await;
    fixture.insert(vec![noop(), noop()]).await;
    let claimed = fixture.claim(1, 2).await;
    let bad = Transition::Done {
        result: Json::from_store("{not json".to_owned()),
    };
    let commits: Arc<[Commit]> = Arc::new([
        Commit {
            id: claimed[0].0,
            fence: claimed[0].1,
            transition: bad,
        },
        Commit {
            id: claimed[1].0,
            fence: claimed[1].1,
            transition: finish(),
        },
    ]);
    let answer = fixture.store.commit(fixture.worker, commits, Vec::new()).await;
    assert!(matches!(answer, Err(StoreError::Refused { .. })), "{answer:?}");
    assert_eq!(
        fixture.commit(&claimed, finish()).await,
        [CommitFate::Committed; 2],
        "nothing was committed"
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
