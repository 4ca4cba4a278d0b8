//! How an engine is started, given roles, and shut down, also while the store hangs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use durable_core::store::{ClaimRequest, NewWorker};
use durable_core::{
    ClaimNumber, Client, Context, Engine, Insert, InstanceId, Job, JobError, QueueName, Status, Store,
};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine_rules::{builder, client, snapshot, until};

const HOUR: Duration = Duration::from_secs(3600);

/// What happened to each of these jobs, by name.
static EVENTS: Mutex<Vec<(String, &'static str)>> = Mutex::new(Vec::new());

fn record(name: &str, event: &'static str) {
    EVENTS.lock().expect("whole").push((name.to_owned(), event));
}

fn events(name: &str) -> Vec<&'static str> {
    let events = EVENTS.lock().expect("whole");
    events
        .iter()
        .filter(|(of, _)| of == name)
        .map(|(_, event)| *event)
        .collect()
}

/// Records when it is dropped.
struct Guard(String);

impl Drop for Guard {
    fn drop(&mut self) {
        record(&self.0, "dropped");
    }
}

/// Ignores that it should stop the first time it runs in a process; ends at once the second time.
#[derive(Serialize, Deserialize)]
struct Stubborn {
    name: String,
}

impl Job for Stubborn {
    const NAME: &'static str = "stubborn";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        let first = !events(&self.name).contains(&"started");
        record(&self.name, "started");
        if first {
            let _guard = Guard(self.name.clone());
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

fn stubborn(name: &str) -> Insert<()> {
    Insert::job(Stubborn {
        name: name.to_owned(),
    })
}

async fn engine(store: &MemoryStore, name: &str) -> Engine {
    let builder = builder(store).name(name).queue("default").job::<Stubborn>();
    builder.lease(HOUR).start().await.expect("started")
}

/// Inserts a job and waits until it runs.
async fn running(client: &Client, name: &str) -> InstanceId {
    let id = client.insert(stubborn(name)).await.expect("inserted").id();
    until("the job runs", || events(name) == ["started"]).await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_a_step_only_after_its_future_was_dropped_and_nothing_waits_out_a_lease() {
    // contract: OPS-2
    let store = MemoryStore::new();
    let first = engine(&store, "first").await;
    let client = client(&store);
    let id = running(&client, "dropped first").await;
    // Refuses nothing; looks at what had happened when the instance was given back.
    store.faults().refuse_commits(|_| {
        record("dropped first", "given back");
        false
    });
    let started = Instant::now();
    first.shutdown().await;
    assert!(started.elapsed() <= Duration::from_secs(30), "the default limit");
    assert_eq!(events("dropped first"), ["started", "dropped", "given back"]);
    let given_back = snapshot(&client, id).await;
    assert_eq!(
        (given_back.status, given_back.attempt, given_back.crashes),
        (Status::Runnable, 0, 0)
    );
    let second = engine(&store, "second").await;
    let started = Instant::now();
    client.result::<()>(id, HOUR).await.expect("done");
    assert_eq!(
        started.elapsed(),
        Duration::ZERO,
        "it can be claimed again at once"
    );
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_flight_when_the_shutdown_begins_is_given_back_unrun() {
    // contract: OPS-2
    let store = MemoryStore::new();
    let client = client(&store);
    let id = client.insert(stubborn("in flight")).await.expect("inserted").id();
    store.faults().hold(Call::Claim);
    let first = engine(&store, "first").await;
    until("the claim is in flight", || {
        store.faults().calls(Call::Claim) == 1
    })
    .await;
    let shutdown = tokio::spawn(first.shutdown());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    store.faults().let_go(Call::Claim);
    let started = Instant::now();
    shutdown.await.expect("shut down");
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "there was nothing to wait for"
    );
    let given_back = snapshot(&client, id).await;
    assert_eq!((given_back.status, given_back.attempt), (Status::Runnable, 0));
    assert_eq!(events("in flight"), [""; 0], "it did not start");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_keeps_its_limit_while_the_store_hangs() {
    // contract: OPS-2
    let store = MemoryStore::new();
    let limit = Duration::from_secs(10);
    let builder = || {
        let builder = builder(&store).queue("default").job::<Stubborn>();
        builder.shutdown_limit(limit).lease(Duration::from_secs(8))
    };
    let first = builder().start().await.expect("started");
    let client = client(&store);
    let id = running(&client, "hanging").await;
    let calls = [
        Call::Claim,
        Call::Commit,
        Call::Release,
        Call::Retire,
        Call::Reap,
        Call::Beat,
        Call::Collect,
    ];
    for call in calls {
        store.faults().hold(call);
    }
    client.insert(stubborn("more")).await.expect("inserted");
    let started = Instant::now();
    first.shutdown().await;
    assert!(started.elapsed() <= limit, "it took {:?}", started.elapsed());
    assert_eq!(
        snapshot(&client, id).await.status,
        Status::Executing,
        "it could not be given back"
    );
    assert_eq!(events("hanging"), ["started", "dropped"]);
    store.faults().clear();
    let second = builder().start().await.expect("the name is free");
    client.result::<()>(id, HOUR).await.expect("done");
    second.shutdown().await;
}

/// Registers a worker that never beats and claims everything.
async fn abandoned(store: &MemoryStore, id: InstanceId) {
    let worker = NewWorker {
        name: "doomed".to_owned(),
        lease: Duration::from_secs(8),
        process: None,
        roles: durable_core::store::Roles::ALL,
    };
    let worker = store.register(worker).await.expect("registered");
    let request = ClaimRequest {
        worker,
        number: ClaimNumber::new(1),
        queue: QueueName::new("default").expect("valid"),
        machines: Arc::new([stubborn("").encode().expect("valid").machine]),
        limit: 10,
    };
    let claimed = store.claim(request).await.expect("claimed").instances;
    assert_eq!(claimed.iter().map(|it| it.id).collect::<Vec<_>>(), [id]);
}

#[tokio::test(start_paused = true)]
async fn each_process_has_the_roles_that_it_was_given_and_no_other() {
    // contract: OPS-1, LEASE-1, LEASE-2, OPS-3
    let store = MemoryStore::new();
    let (faults, client) = (store.faults(), client(&store));
    let id = client.insert(stubborn("abandoned")).await.expect("inserted").id();
    abandoned(&store, id).await;
    let idle = builder(&store)
        .reaper(false)
        .collector(false)
        .start()
        .await
        .expect("started");
    tokio::time::sleep(HOUR).await;
    assert_eq!(
        (
            faults.calls(Call::Claim),
            faults.calls(Call::Reap),
            faults.calls(Call::Collect)
        ),
        (1, 0, 0)
    );
    assert!(faults.calls(Call::Beat) > 0);
    assert_eq!(
        snapshot(&client, id).await.status,
        Status::Executing,
        "nobody reaps"
    );

    let maintainer = builder(&store).name("maintainer").start().await.expect("started");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let returned = snapshot(&client, id).await;
    assert_eq!(
        (returned.status, returned.attempt, returned.crashes),
        (Status::Runnable, 1, 1)
    );
    assert!(faults.calls(Call::Collect) > 0);
    assert_eq!(
        faults.calls(Call::Claim),
        1,
        "an engine without queues claims nothing"
    );
    assert_ne!(idle.worker(), maintainer.worker(), "two engines are two workers");
    idle.shutdown().await;
    maintainer.shutdown().await;
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Nothing;

impl Job for Nothing {
    const NAME: &'static str = "nothing";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn two_engines_of_one_process_serve_their_own_queues() {
    // contract: OPS-1
    let store = MemoryStore::new();
    let client = client(&store);
    let start = |name: &'static str, queue: &'static str| {
        builder(&store).name(name).queue(queue).job::<Nothing>().start()
    };
    let mail = start("mail", "mail").await.expect("started");
    let in_mail = client
        .insert(Insert::job(Nothing).queue("mail"))
        .await
        .expect("inserted")
        .id();
    let in_print = client
        .insert(Insert::job(Nothing).queue("print"))
        .await
        .expect("inserted")
        .id();
    client.result::<()>(in_mail, HOUR).await.expect("done");
    tokio::time::sleep(HOUR).await;
    assert_eq!(
        snapshot(&client, in_print).await.status,
        Status::Runnable,
        "not its queue"
    );
    let print = start("print", "print").await.expect("started");
    client.result::<()>(in_print, HOUR).await.expect("done");
    mail.shutdown().await;
    print.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn by_default_the_work_of_a_killed_worker_runs_elsewhere_within_15_seconds() {
    // contract: LEASE-2
    for offset in 0..12 {
        let store = MemoryStore::new();
        let (faults, client) = (store.faults(), client(&store));
        let name = format!("killed {offset}");
        let start = |engine: &'static str| {
            builder(&store)
                .name(engine)
                .queue("default")
                .job::<Stubborn>()
                .start()
        };
        let doomed = start("doomed").await.expect("started");
        let id = running(&client, &name).await;
        let other = start("other").await.expect("started");
        // Long enough for the other's polls to be as rare as they get, at all phases of its timers.
        tokio::time::sleep(Duration::from_secs(60) + Duration::from_millis(430) * offset).await;
        let beats = faults.calls(Call::Beat);
        while faults.calls(Call::Beat) < beats + 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // No outcome, no release: what is left is a process that is gone just after its heartbeat.
        faults.hold(Call::Commit);
        faults.hold(Call::Retire);
        drop(doomed);
        let killed = Instant::now();
        while snapshot(&client, id).await.attempt == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        until_later("it runs elsewhere", || {
            events(&name) == ["started", "dropped", "started"]
        })
        .await;
        let took = killed.elapsed();
        assert!(took < Duration::from_secs(15), "offset {offset}: {took:?}");
        assert!(
            took > Duration::from_secs(5),
            "offset {offset}: {took:?}: it was given back, not reaped"
        );
        faults.clear();
        other.shutdown().await;
    }
}

async fn until_later(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never so: {what}");
}
