//! Signals and inserts in a transaction of the caller: there exactly if it commits, and nobody else waits for it before.

use std::sync::Arc;

use durable_core::store::{
    ClaimRequest, Commit, CommitFate, CommitRequest, NewWorker, Patience, Roles, Transition,
};
use durable_core::{
    ClaimNumber, Client, Context, Engine, Insert, InstanceId, Job, JobError, Json, Machine, SendSignal,
    SignalFate, SignalName, Status, StepResult, Store, Target, WorkerId, done, schedule_children,
};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

#[derive(Serialize, Deserialize)]
struct Order;

impl Job for Order {
    const NAME: &'static str = "order";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

struct Scene {
    _database: TestDatabase,
    pool: PgPool,
    store: PgStore,
    client: Client,
    worker: WorkerId,
}

impl Scene {
    async fn new() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        let worker = NewWorker {
            name: "test".to_owned(),
            lease: std::time::Duration::from_secs(3600),
            process: None,
            roles: Roles::ALL,
        };
        Self {
            pool: database.pool(3).await.expect("a pool"),
            worker: store.register(worker).await.expect("registered"),
            client: Client::new(store.clone()),
            store,
            _database: database,
        }
    }

    async fn insert(&self, key: &'static str) -> InstanceId {
        let inserted = self.client.insert(Insert::job(Order).correlation_key(key)).await;
        inserted.expect("inserted").id()
    }

    /// Claims everything and commits one transition for each.
    async fn step(&self, number: i64, transition: Transition) -> Vec<CommitFate> {
        let request = ClaimRequest {
            worker: self.worker,
            number: ClaimNumber::new(number),
            queue: durable_core::QueueName::new("default").expect("valid"),
            machines: Arc::new([durable_core::MachineKey::new("order", 1).expect("valid")]),
            limit: 10,
        };
        let claimed = self.store.claim(request).await.expect("claimed").instances;
        let outcomes: Vec<Commit> = claimed
            .iter()
            .map(|one| Commit::of(one, transition.clone()))
            .collect();
        let request = CommitRequest {
            patience: Patience::Skip,
            ..CommitRequest::new(self.worker, outcomes, Vec::new())
        };
        self.store.commit(request).await.expect("committed").fates
    }

    async fn status(&self, id: InstanceId) -> Status {
        let snapshot = self.client.snapshot(id).await.expect("read");
        snapshot.expect("there").status
    }
}

fn park() -> Transition {
    Transition::Await {
        step: "perform".to_owned(),
        state: Json::encode(&()).expect("valid"),
        signals: vec![SignalName::new("paid").expect("valid")],
        timeout: None,
    }
}

#[tokio::test]
async fn a_signal_of_a_transaction_arrives_exactly_if_it_commits() {
    // contract: INS-2, SIG-1, SIG-2
    let scene = Scene::new().await;
    let (by_id, by_key) = (scene.insert("a").await, scene.insert("b").await);
    scene.step(1, park()).await;
    for commits in [false, true] {
        let mut transaction = scene.pool.begin().await.expect("begun");
        let mut caller = scene.store.in_transaction(&mut transaction);
        let sent = caller
            .send_all([
                SendSignal::new(by_id, "paid", &1),
                SendSignal::new(Target::key("b").expect("valid"), "paid", &2),
                SendSignal::new(InstanceId::new(999), "paid", &3),
            ])
            .await;
        assert_eq!(sent.expect("sent"), [true, true, false]);
        assert_eq!(
            scene.status(by_id).await,
            Status::AwaitingSignal,
            "not before the commit"
        );
        if commits {
            transaction.commit().await.expect("committed");
        } else {
            transaction.rollback().await.expect("rolled back");
            assert_eq!(scene.status(by_id).await, Status::AwaitingSignal);
        }
    }
    for (id, payload) in [(by_id, "1"), (by_key, "2")] {
        let snapshot = scene.client.snapshot(id).await.expect("read").expect("there");
        assert_eq!(snapshot.status, Status::Runnable);
        let inbox: Vec<&str> = snapshot
            .inbox
            .iter()
            .map(|signal| signal.payload.as_str())
            .collect();
        assert_eq!(inbox, [payload]);
    }
}

#[tokio::test]
async fn nobody_waits_for_a_transaction_that_has_sent_a_signal() {
    // contract: OUT-6, SIG-1
    let scene = Scene::new().await;
    let id = scene.insert("a").await;
    let mut transaction = scene.pool.begin().await.expect("begun");
    let mut caller = scene.store.in_transaction(&mut transaction);
    assert!(caller.send(SendSignal::new(id, "paid", &1)).await.expect("sent"));
    assert_eq!(
        scene.step(1, park()).await,
        [CommitFate::Committed],
        "its row is free"
    );
    let other = scene.client.signal(id, "other", &()).await.expect("delivered");
    assert_eq!(other, SignalFate::Stored(id), "and others deliver meanwhile");
    transaction.commit().await.expect("committed");
    assert_eq!(scene.status(id).await, Status::Runnable);

    let mut transaction = scene.pool.begin().await.expect("begun");
    let mut caller = scene.store.in_transaction(&mut transaction);
    assert!(caller.send(SendSignal::new(id, "late", &1)).await.expect("sent"));
    let done = Transition::Done {
        result: Json::encode(&()).expect("valid"),
    };
    assert_eq!(scene.step(2, done).await, [CommitFate::Committed]);
    transaction
        .commit()
        .await
        .expect("a target that has ended drops the signal");
    let snapshot = scene.client.snapshot(id).await.expect("read").expect("there");
    assert_eq!((snapshot.status, snapshot.inbox.len()), (Status::Done, 0));
}

#[tokio::test]
async fn work_of_a_transaction_starts_without_a_poll_once_its_pokes_are_told() {
    // contract: INS-2, POKE-1
    let scene = Scene::new().await;
    let hour = std::time::Duration::from_secs(3600);
    let engine = Engine::builder(scene.store.clone())
        .queue("default")
        .job::<Order>()
        .poll_interval(hour)
        .start()
        .await
        .expect("started");
    // Its first look is over: what it finds from now on, it was told of.
    let first = scene.insert("first").await;
    scene.client.result::<()>(first, hour).await.expect("done");
    let mut transaction = scene.pool.begin().await.expect("begun");
    let mut durable = scene.store.in_transaction(&mut transaction);
    let inserted = durable.insert(Insert::job(Order)).await.expect("inserted");
    let pokes = durable.pokes();
    transaction.commit().await.expect("committed");
    scene.client.poke(&pokes);
    let within = std::time::Duration::from_secs(60);
    let done = scene.client.result::<()>(inserted.id(), within).await;
    done.expect("done, an hour before the poll");
    engine.shutdown().await;
}

/// Has a child whose correlation key somebody else may hold.
#[derive(Serialize, Deserialize)]
struct Parent;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ParentStep {
    Spawn,
    Join,
}

impl Machine for Parent {
    const NAME: &'static str = "parent";
    type Step = ParentStep;
    type Result = usize;

    fn first_step() -> ParentStep {
        ParentStep::Spawn
    }

    async fn step(self, step: ParentStep, context: &Context) -> StepResult<Self> {
        match step {
            ParentStep::Spawn => schedule_children(ParentStep::Join, self)
                .child(Insert::job(Order).correlation_key("taken"))
                .ok(),
            ParentStep::Join => done(context.children().len()).ok(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_but_the_parent_of_its_key_waits_for_a_transaction_that_has_inserted() {
    // contract: OUT-6, CHILD-1, INS-2
    let scene = Scene::new().await;
    let mut transaction = scene.pool.begin().await.expect("begun");
    let mut caller = scene.store.in_transaction(&mut transaction);
    let taken = caller.insert(Insert::job(Order).correlation_key("taken")).await;
    let taken = taken.expect("inserted").id();
    let session: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut *transaction)
        .await
        .expect("read");
    let engine = Engine::builder(scene.store.clone())
        .queue("default")
        .machine::<Parent>()
        .job::<Order>()
        .start()
        .await
        .expect("started");
    let parent = scene
        .client
        .insert(Insert::machine(Parent))
        .await
        .expect("inserted")
        .id();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
    let waiting = async || {
        let waiting: i64 = sqlx::query_scalar(waits)
            .bind(session)
            .fetch_one(&scene.pool)
            .await
            .expect("read");
        waiting
    };
    while waiting().await == 0 {
        tokio::task::yield_now().await;
    }
    // More than one commit takes, while the parent tries again and again.
    let limit = std::time::Duration::from_secs(60);
    for _ in 0..3 {
        let orders = (0..50).map(|_| Insert::job(Order));
        let others = scene.client.insert_all(orders).await.expect("inserted");
        for other in others {
            scene
                .client
                .result::<()>(other.id(), limit)
                .await
                .expect("done meanwhile");
        }
    }
    assert!(waiting().await <= 1, "and never with more than one connection");
    assert!(!scene.status(parent).await.is_terminal());
    transaction.commit().await.expect("committed");
    let joined: usize = scene.client.result(parent, limit).await.expect("done");
    assert_eq!(joined, 0, "the key is taken, so there is nobody to wait for");
    scene.client.result::<()>(taken, limit).await.expect("done");
    engine.shutdown().await;
}
