//! What the engine asks of connections: few of them, none during a step, none poisoned by a dropped caller.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use durable_core::store::{ClaimRequest, Commit, CommitRequest, NewWorker, Store, Transition};
use durable_core::{
    ClaimNumber, Client, Context, Engine, Insert, Job, JobError, Json, QueueName, Retention, Status, WorkerId,
};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs until the gate opens.
#[derive(Serialize, Deserialize)]
struct Waiting;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static GATE: std::sync::LazyLock<watch::Sender<usize>> = std::sync::LazyLock::new(|| watch::channel(0).0);

impl Job for Waiting {
    const NAME: &'static str = "waiting";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let mut gate = GATE.subscribe();
        gate.wait_for(|open| *open > 0).await?;
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Quick;

impl Job for Quick {
    const NAME: &'static str = "quick";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.expect("counted")
}

/// The sessions of stores on this database, but not the observer's own.
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'durable'";
const IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND application_name = 'durable' AND state LIKE 'idle in transaction%'";
const ADVISORY_LOCKS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_running_steps_hold_no_connection_no_transaction_and_no_advisory_lock() {
    // contract: CORE-4
    let database = TestDatabase::new().await.expect("a database");
    let observer = database.pool(1).await.expect("a pool");
    let engine = Engine::builder(PgStore::connect(&database.url()).await.expect("connected"))
        .queue("default")
        .job::<Waiting>()
        .job::<Quick>()
        .start()
        .await
        .expect("started");
    let client = engine.client();
    let waiting = client
        .insert_all((0..490).map(|_| Insert::job(Waiting)))
        .await
        .expect("inserted");
    while RUNNING.load(Ordering::SeqCst) < waiting.len() {
        tokio::task::yield_now().await;
    }
    // While they run, others pass through; the sessions are looked at in between.
    for _ in 0..20 {
        // More callers at once than the pool has connections.
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..30 {
            let client = client.clone();
            callers.spawn(async move {
                let id = client.insert(Insert::job(Quick)).await.expect("inserted").id();
                client.result::<()>(id, LIMIT).await.expect("done");
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.expect("no panic");
        }
        assert_eq!(count(&observer, IN_TRANSACTION).await, 0);
        assert_eq!(count(&observer, ADVISORY_LOCKS).await, 0);
    }
    assert!(
        count(&observer, SESSIONS).await <= 5 + 1,
        "a pool of five, and the heartbeat"
    );
    GATE.send_replace(1);
    for inserted in waiting {
        client.result::<()>(inserted.id(), LIMIT).await.expect("done");
    }
    assert!(count(&observer, SESSIONS).await <= 5 + 1);
    engine.shutdown().await;
}

/// Polls a call `times` times and drops it, finished or not; says whether it was finished.
async fn dropped_after<T>(times: usize, call: impl Future<Output = T>) -> bool {
    let mut call = pin!(call);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == times {
            return Poll::Ready(false);
        }
        polled += 1;
        match call.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            // The next poll comes when the call was woken, as it would be without this; or at once when it is
            // the last.
            Poll::Pending if polled == times => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn worker(store: &PgStore) -> WorkerId {
    let worker = NewWorker {
        name: "dropped".to_owned(),
        lease: Duration::from_secs(3600),
        process: None,
        roles: durable_core::store::Roles::ALL,
    };
    store.register(worker).await.expect("registered")
}

fn request(worker: WorkerId, number: i64) -> ClaimRequest {
    ClaimRequest {
        worker,
        number: ClaimNumber::new(number),
        queue: QueueName::new("default").expect("valid"),
        machines: Arc::new([Insert::job(Quick).encode().expect("valid").machine]),
        limit: 3,
    }
}

fn done() -> Transition {
    Transition::Done {
        result: Json::encode(&()).expect("valid"),
    }
}

/// More polls than any call of a store needs.
const MOST_POLLS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_are_dropped_at_any_await_leave_the_connections_healthy() {
    // contract: CORE-4
    for connections in [1, 2] {
        let calls = drop_callers(connections);
        tokio::time::timeout(LIMIT, calls).await.expect("no call hangs");
    }
}

async fn drop_callers(connections: u32) {
    let database = TestDatabase::new().await.expect("a database");
    let observer = database.pool(1).await.expect("a pool");
    let builder = PgStore::builder(&database.url()).expect("a url");
    let store = builder
        .max_connections(connections)
        .connect()
        .await
        .expect("connected");
    let client = Client::new(store.clone());
    let worker = worker(&store).await;
    let mut number = 0;
    for times in (0..=MOST_POLLS).cycle().take(10 * (MOST_POLLS + 1)) {
        number += 1;
        let keyed = || Insert::job(Quick).correlation_key(format!("key-{number}"));
        let id = client.insert(Insert::job(Quick)).await.expect("inserted").id();
        dropped_after(times, client.insert(keyed())).await;
        dropped_after(times, client.insert_all((0..3).map(|_| Insert::job(Quick)))).await;
        dropped_after(times, client.snapshot(id)).await;
        dropped_after(times, client.result::<()>(id, Duration::ZERO)).await;
        dropped_after(times, client.find("key-1")).await;
        dropped_after(times, store.claim(request(worker, 2 * number))).await;
        let claimed = store
            .claim(request(worker, 2 * number + 1))
            .await
            .expect("claimed");
        let instances = claimed.instances.iter();
        let commits: Vec<Commit> = instances.map(|one| Commit::of(one, done())).collect();
        let asked = commits.iter().map(|commit| (commit.id, commit.fence)).collect();
        dropped_after(times, store.commit(CommitRequest::new(worker, commits, vec![]))).await;
        dropped_after(times, store.resolve(worker, asked)).await;
        dropped_after(times, store.release(worker, vec![ClaimNumber::new(2 * number)])).await;
        dropped_after(times, store.reap(10)).await;
        dropped_after(times, store.collect(Retention::default(), 10)).await;
        dropped_after(times, store.heart().beat(worker, LIMIT)).await;
        let mut caller = observer.begin().await.expect("begun");
        dropped_after(
            times,
            store.in_transaction(&mut caller).insert(Insert::job(Quick)),
        )
        .await;
        caller
            .rollback()
            .await
            .expect("the caller's own transaction is whole");
    }
    // Every call works, on every connection at once.
    let calls = (0..20).map(|_| client.insert(Insert::job(Quick)));
    let mut last = None;
    for call in calls {
        last = Some(call.await.expect("inserted").id());
    }
    let last = client
        .snapshot(last.expect("one"))
        .await
        .expect("read")
        .expect("there");
    assert_eq!(last.status, Status::Runnable);
    store
        .release(worker, (1..=2 * number + 1).map(ClaimNumber::new).collect())
        .await
        .expect("released");
    assert_eq!(
        count(&observer, IN_TRANSACTION).await,
        0,
        "a pool of {connections}"
    );
    assert_eq!(count(&observer, "SELECT count(*) FROM durable.claims").await, 0);
    let places = "SELECT count(*) FROM durable.instances AS i \
             WHERE (i.status = 'active') <> EXISTS (SELECT FROM durable.ready AS r WHERE r.instance_id = i.id)";
    assert_eq!(count(&observer, places).await, 0, "each instance is in one place");
    assert!(store.pool().size() <= connections);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_open_transaction_on_one_instance_delays_no_other() {
    // contract: OUT-6
    let database = TestDatabase::new().await.expect("a database");
    let observer = database.pool(1).await.expect("a pool");
    let store = PgStore::connect(&database.url()).await.expect("connected");
    let client = Client::new(store.clone());
    let held = client.insert(Insert::job(Quick)).await.expect("inserted").id();
    let mut caller = observer.begin().await.expect("begun");
    sqlx::query("UPDATE durable.instances SET priority = priority WHERE id = $1")
        .bind(held.get())
        .execute(&mut *caller)
        .await
        .expect("locked");
    let engine = Engine::builder(store)
        .queue("default")
        .job::<Quick>()
        .start()
        .await
        .expect("started");
    for _ in 0..5 {
        let others = client
            .insert_all((0..50).map(|_| Insert::job(Quick)))
            .await
            .expect("inserted");
        for other in others {
            client
                .result::<()>(other.id(), LIMIT)
                .await
                .expect("done while the caller holds on");
        }
    }
    let waiting = client.snapshot(held).await.expect("read").expect("there");
    assert_eq!(
        (waiting.status, waiting.attempt),
        (Status::Executing, 0),
        "claimed, run, and set aside"
    );
    caller.commit().await.expect("committed");
    client
        .result::<()>(held, LIMIT)
        .await
        .expect("done once the caller let go");
    engine.shutdown().await;
    let claims = "SELECT count(*) FROM durable.claims";
    assert_eq!(count(&observer, claims).await, 0);
}

#[tokio::test]
async fn an_error_after_an_insert_in_a_callers_transaction_takes_the_insert_with_it() {
    // contract: INS-2
    let database = TestDatabase::new().await.expect("a database");
    let callers = database.pool(1).await.expect("a pool");
    let store = PgStore::connect(&database.url()).await.expect("connected");
    let client = Client::new(store.clone());
    let mut caller = callers.begin().await.expect("begun");
    let insert = || Insert::job(Quick).correlation_key("order-1");
    let id = store
        .in_transaction(&mut caller)
        .insert(insert())
        .await
        .expect("inserted")
        .id();
    sqlx::query("SELECT 1 / 0")
        .execute(&mut *caller)
        .await
        .expect_err("an error of the caller's");
    let refused = store.in_transaction(&mut caller).insert(insert()).await;
    assert!(refused.is_err(), "the transaction is aborted");
    // Committing an aborted transaction is a rollback.
    caller.commit().await.expect("answered");
    assert_eq!(client.snapshot(id).await.expect("read"), None);
    assert_eq!(client.find("order-1").await.expect("read"), None);
    assert!(
        !client.insert(insert()).await.expect("inserted").is_duplicate(),
        "the key is free"
    );
}
