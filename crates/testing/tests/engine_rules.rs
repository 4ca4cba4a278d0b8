//! Rules of a whole engine: versions, unknown machines, the context, group commit, leases.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use durable_core::{
    Client, Context, Engine, EngineBuilder, Insert, InstanceId, Job, JobError, Machine, Snapshot, Status,
    StepResult, Store, WorkerId, done, next, retry,
};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(3600);

pub(crate) fn builder(store: &MemoryStore) -> EngineBuilder {
    Engine::builder(Arc::new(store.clone()) as Arc<dyn Store>).heartbeat_thread(false)
}

pub(crate) fn client(store: &MemoryStore) -> Client {
    Client::new(Arc::new(store.clone()) as Arc<dyn Store>)
}

pub(crate) async fn snapshot(client: &Client, id: InstanceId) -> Snapshot {
    client.snapshot(id).await.expect("read").expect("there")
}

/// Lets the other tasks run until something is so; under paused time, no time passes.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if is_so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never so: {what}");
}

#[derive(Serialize, Deserialize)]
struct Invoice {
    pence: u64,
}

#[derive(Serialize, Deserialize)]
struct OldInvoice {
    pounds: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Send {
    Print,
    Post,
}

impl Machine for OldInvoice {
    const NAME: &'static str = "invoice";
    type Step = Send;
    type Result = String;

    fn first_step() -> Send {
        Send::Print
    }

    async fn step(self, step: Send, _context: &Context) -> StepResult<Self> {
        match step {
            Send::Print => next(Send::Post, self).after(Duration::from_secs(60)).ok(),
            Send::Post => done(format!("{} pounds", self.pounds)).ok(),
        }
    }
}

impl Machine for Invoice {
    const NAME: &'static str = "invoice";
    const VERSION: u16 = 2;
    type Step = Send;
    type Result = String;

    fn first_step() -> Send {
        Send::Print
    }

    async fn step(self, step: Send, _context: &Context) -> StepResult<Self> {
        match step {
            Send::Print => next(Send::Post, self).ok(),
            Send::Post => done(format!("{} pence", self.pence)).ok(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_finishes_on_the_version_that_it_started_on() {
    // contract: FSM-1, FSM-5
    let store = MemoryStore::new();
    let before = builder(&store)
        .queue("default")
        .machine::<OldInvoice>()
        .start()
        .await
        .expect("started");
    let old = before
        .client()
        .insert(Insert::machine(OldInvoice { pounds: 3 }))
        .await
        .expect("inserted");
    let client = client(&store);
    while snapshot(&client, old.id()).await.step != "post" {
        tokio::task::yield_now().await;
    }
    before.shutdown().await;
    let only_new = builder(&store)
        .queue("default")
        .machine::<Invoice>()
        .start()
        .await
        .expect("started");
    let new = client
        .insert(Insert::machine(Invoice { pence: 5 }))
        .await
        .expect("inserted");
    assert_eq!(
        client.result::<String>(new.id(), LIMIT).await.expect("a result"),
        "5 pence"
    );
    tokio::time::sleep(LIMIT).await;
    let waiting = snapshot(&client, old.id()).await;
    assert_eq!(
        (waiting.status, waiting.attempt),
        (Status::Runnable, 0),
        "left to a worker of its version"
    );
    only_new.shutdown().await;
    let both = builder(&store)
        .queue("default")
        .machine::<Invoice>()
        .machine::<OldInvoice>()
        .start()
        .await
        .expect("started");
    assert_eq!(
        client.result::<String>(old.id(), LIMIT).await.expect("a result"),
        "3 pounds"
    );
    both.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn instances_of_unknown_machines_wait_untouched_and_cause_no_spinning() {
    // contract: FSM-5
    let store = MemoryStore::new();
    let client = client(&store);
    let unknown = client
        .insert_all((0..30).map(|pounds| Insert::machine(OldInvoice { pounds }).priority(0)))
        .await
        .expect("inserted");
    let engine = builder(&store)
        .queue("default")
        .machine::<Invoice>()
        .start()
        .await
        .expect("started");
    let known = client
        .insert(Insert::machine(Invoice { pence: 1 }).priority(9))
        .await
        .expect("inserted");
    client
        .result::<String>(known.id(), LIMIT)
        .await
        .expect("what stands behind them runs");
    let before = store.faults().calls(Call::Claim);
    tokio::time::sleep(LIMIT).await;
    let polls = store.faults().calls(Call::Claim) - before;
    assert!(
        polls <= 3600 / 5 + 10,
        "{polls} claims in an hour: more than the polls of an idle queue"
    );
    for inserted in unknown {
        let left = snapshot(&client, inserted.id()).await;
        assert_eq!(
            (left.status, left.attempt, left.crashes),
            (Status::Runnable, 0, 0)
        );
    }
    engine.shutdown().await;
}

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    machine: String,
    version: u16,
    step: String,
    attempt: u32,
    crashes: u32,
    stopping: bool,
    key: String,
}

static SEEN: Mutex<Vec<(InstanceId, Seen)>> = Mutex::new(Vec::new());

#[derive(Serialize, Deserialize)]
struct Curious;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Look {
    Around,
    UntilTheEnd,
}

impl Machine for Curious {
    const NAME: &'static str = "curious";
    const VERSION: u16 = 3;
    type Step = Look;
    type Result = String;

    fn first_step() -> Look {
        Look::Around
    }

    async fn step(self, step: Look, context: &Context) -> StepResult<Self> {
        let seen = Seen {
            machine: context.machine().name().to_owned(),
            version: context.machine().version(),
            step: context.step().to_owned(),
            attempt: context.attempt(),
            crashes: context.crashes(),
            stopping: context.stopping().is_cancelled(),
            key: context.idempotency_key(),
        };
        SEEN.lock().expect("whole").push((context.id(), seen));
        match step {
            Look::Around if context.attempt() == 0 => retry(self).ok(),
            Look::Around => next(Look::UntilTheEnd, self).ok(),
            Look::UntilTheEnd => {
                context.stopping().cancelled().await;
                done("told to stop".to_owned()).ok()
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_context_tells_what_runs_and_when_to_stop() {
    // contract: FSM-6, OPS-2
    let store = MemoryStore::new();
    let engine = builder(&store)
        .queue("default")
        .machine::<Curious>()
        .start()
        .await
        .expect("started");
    let client = client(&store);
    let started = Instant::now();
    let id = client
        .insert(Insert::machine(Curious))
        .await
        .expect("inserted")
        .id();
    until("the last step runs", || SEEN.lock().expect("whole").len() == 3).await;
    assert_eq!(
        Instant::now(),
        started,
        "each step follows the one before at once, without a poll"
    );
    engine.shutdown().await;
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "the step was told, and ended"
    );
    assert_eq!(snapshot(&client, id).await.status, Status::Done);
    let seen = |step: &str, attempt, visit| {
        let seen = Seen {
            machine: "curious".to_owned(),
            version: 3,
            step: step.to_owned(),
            attempt,
            crashes: 0,
            stopping: false,
            key: format!("{id}-{step}-{visit}"),
        };
        (id, seen)
    };
    let all = SEEN.lock().expect("whole");
    assert_eq!(
        *all,
        [
            seen("around", 0, 0),
            seen("around", 1, 0),
            seen("until_the_end", 0, 1)
        ],
        "a retry keeps the idempotency key"
    );
}

static QUICK_RUNS: AtomicU32 = AtomicU32::new(0);

#[derive(Serialize, Deserialize)]
struct Quick;

impl Job for Quick {
    const NAME: &'static str = "quick";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        QUICK_RUNS.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_outcome_commits_at_once_and_what_queues_up_behind_a_commit_is_the_next_one() {
    // contract: OUT-1
    let store = MemoryStore::new();
    let faults = store.faults();
    let engine = builder(&store)
        .queue("default")
        .job::<Quick>()
        .start()
        .await
        .expect("started");
    let client = client(&store);
    let started = Instant::now();
    client.insert(Insert::job(Quick)).await.expect("inserted");
    until("the outcome is offered", || faults.calls(Call::Commit) == 1).await;
    assert_eq!(
        Instant::now(),
        started,
        "no timer stands between a step and its commit"
    );

    faults.hold(Call::Commit);
    let first = client.insert(Insert::job(Quick)).await.expect("inserted").id();
    until("the first commit hangs", || faults.calls(Call::Commit) == 2).await;
    let rest = client
        .insert_all((0..300).map(|_| Insert::job(Quick)))
        .await
        .expect("inserted");
    until("the others ran", || QUICK_RUNS.load(Ordering::SeqCst) == 302).await;
    assert_eq!(snapshot(&client, first).await.status, Status::Executing);
    faults.let_go(Call::Commit);
    for inserted in rest {
        client.result::<()>(inserted.id(), LIMIT).await.expect("done");
    }
    assert_eq!(
        faults.calls(Call::Commit),
        3,
        "300 outcomes queued up, and were one commit"
    );
    engine.shutdown().await;
}

/// How often each of these jobs was started, by name.
static HELD: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[derive(Serialize, Deserialize)]
struct Held {
    name: String,
}

impl Job for Held {
    const NAME: &'static str = "held";
    type Output = u32;

    async fn perform(&self, context: &Context) -> Result<u32, JobError> {
        HELD.lock().expect("whole").push(self.name.clone());
        if context.attempt() == 0 {
            context.stopping().cancelled().await;
        }
        Ok(context.attempt())
    }
}

fn runs_of(name: &str) -> usize {
    HELD.lock()
        .expect("whole")
        .iter()
        .filter(|held| *held == name)
        .count()
}

/// Inserts a job that ends when it is told to stop, and waits until it runs.
async fn held_job(client: &Client, name: &str) -> InstanceId {
    let name = name.to_owned();
    let job = Held { name: name.clone() };
    let id = client.insert(Insert::job(job)).await.expect("inserted").id();
    until("the job runs", || runs_of(&name) == 1).await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_its_lease_tells_its_steps_commits_nothing_and_goes_on_as_a_new_one() {
    // contract: LEASE-4, CLAIM-4, FSM-6
    let store = MemoryStore::new();
    let engine = builder(&store)
        .queue("default")
        .job::<Held>()
        .start()
        .await
        .expect("started");
    let client = client(&store);
    let id = held_job(&client, "lost").await;
    let lost: WorkerId = engine.worker();
    store.declare_dead(vec![lost]).await.expect("declared");
    let result: u32 = client.result(id, LIMIT).await.expect("a result");
    assert_eq!(
        result, 1,
        "the outcome of the first try came too late and does not count"
    );
    assert_ne!(engine.worker(), lost);
    let end = snapshot(&client, id).await;
    assert_eq!((end.attempt, end.crashes, runs_of("lost")), (1, 1, 2));
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_only_seemed_lost_costs_nothing_but_the_steps_are_told() {
    // contract: LEASE-4, OUT-3
    let store = MemoryStore::new();
    let engine = builder(&store)
        .queue("default")
        .job::<Held>()
        .reaper(false)
        .lease(Duration::from_secs(8))
        .start()
        .await
        .expect("started");
    let client = client(&store);
    let id = held_job(&client, "kept").await;
    let worker = engine.worker();
    for _ in 0..6 {
        store.faults().fail_next(Call::Beat);
    }
    let result: u32 = client.result(id, LIMIT).await.expect("a result");
    assert_eq!(
        (result, engine.worker()),
        (0, worker),
        "nobody took it back, so its outcome counts"
    );
    let beats = store.faults().calls(Call::Beat);
    while store.faults().calls(Call::Beat) < beats + 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let later = held_job(&client, "later").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        snapshot(&client, later).await.status,
        Status::Executing,
        "the token of a step that starts after the lease was won back has not tripped"
    );
    engine.shutdown().await;
}
