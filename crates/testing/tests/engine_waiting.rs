//! Waiting for instances: what a caller is told, when, and at what cost.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    ClaimRequest, ClaimedInstance, Commit, CommitFate, CommitRequest, NewWorker, Roles, Store as _,
    Transition,
};
use durable_core::{
    ClaimNumber, Client, Context, FailureKind, Insert, InstanceId, Job, JobError, Json, Machine, QueueName,
    Settled, StepResult, WaitError, WorkerId, await_signal, done,
};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine_rules::{builder, client};

const HOUR: Duration = Duration::from_secs(3600);
const TICK: Duration = Duration::from_millis(25);

#[derive(Serialize, Deserialize)]
struct Echo(String);

impl Job for Echo {
    const NAME: &'static str = "echo";
    const MAX_ATTEMPTS: u32 = 1;
    type Output = String;

    async fn perform(&self, _context: &Context) -> Result<String, JobError> {
        match self.0.as_str() {
            "fail" => Err("it failed".into()),
            "cancel" => Err(JobError::cancel("not wanted")),
            text => Ok(text.to_owned()),
        }
    }
}

fn echo(text: &str) -> Insert<String> {
    Insert::job(Echo(text.to_owned()))
}

#[derive(Serialize, Deserialize)]
struct Patient;

#[derive(Serialize, Deserialize)]
enum PatientStep {
    Wait,
    Go,
}

impl Machine for Patient {
    const NAME: &'static str = "patient";
    type Step = PatientStep;
    type Result = String;

    fn first_step() -> PatientStep {
        PatientStep::Wait
    }

    async fn step(self, step: PatientStep, context: &Context) -> StepResult<Self> {
        match step {
            PatientStep::Wait => await_signal("go", PatientStep::Go, self).ok(),
            PatientStep::Go => done(context.signal::<String>("go")?).ok(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_told_how_it_settled() {
    // contract: WAIT-1
    let store = MemoryStore::new();
    let client = client(&store);
    let engine = builder(&store)
        .queue("default")
        .job::<Echo>()
        .machine::<Patient>()
        .start()
        .await
        .expect("started");
    let started = Instant::now();
    let insert = async |insert| client.insert(insert).await.expect("inserted").id();
    let ok = insert(echo("hello")).await;
    let answer = client.settled::<String>(ok, HOUR).await.expect("settled");
    assert_eq!(answer, Settled::Done("hello".to_owned()));
    let failed = insert(echo("fail")).await;
    let answer = client.settled::<String>(failed, HOUR).await.expect("settled");
    assert!(matches!(answer, Settled::Failed(failure) if failure.kind == FailureKind::Error));
    let cancelled = insert(echo("cancel")).await;
    let answer = client.settled::<String>(cancelled, HOUR).await.expect("settled");
    assert!(matches!(answer, Settled::Cancelled(failure) if failure.message == "not wanted"));
    let parked = insert(Insert::machine(Patient)).await;
    let answer = client.settled::<String>(parked, HOUR).await.expect("settled");
    assert_eq!(answer, Settled::Parked);
    assert_eq!(
        started.elapsed(),
        Duration::ZERO,
        "what this process ends or parks is there at once, without a tick"
    );

    let limit = Duration::from_secs(5);
    let busy = client.result::<String>(parked, limit).await;
    assert!(
        matches!(busy, Err(WaitError::Busy { .. })),
        "it waits through the park: {busy:?}"
    );
    assert_eq!(started.elapsed(), limit);
    let through = tokio::spawn({
        let client = client.clone();
        async move { client.result::<String>(parked, HOUR).await }
    });
    tokio::time::sleep(TICK).await;
    client.signal(parked, "go", "went").await.expect("sent");
    assert_eq!(through.await.expect("joined").expect("done"), "went");

    let missing = client
        .settled::<String>(InstanceId::new(999_999), HOUR)
        .await
        .expect_err("nobody");
    assert!(matches!(missing, WaitError::NotFound { .. }));
    let unfit = client.result::<u64>(ok, HOUR).await.expect_err("no number");
    assert!(matches!(unfit, WaitError::Decode { .. }));
    let nobody_runs_it = insert(echo("later").queue("elsewhere")).await;
    let busy = client.settled::<String>(nobody_runs_it, Duration::ZERO).await;
    assert!(matches!(busy, Err(WaitError::Busy { .. })), "{busy:?}");
    let at_once = client.result::<String>(ok, Duration::ZERO).await;
    assert_eq!(at_once.expect("done"), "hello", "no limit is one look");
    engine.shutdown().await;
}

/// A worker that this test plays by hand: nothing in this process hears of what it commits.
struct Elsewhere {
    store: MemoryStore,
    worker: WorkerId,
    claimed: Vec<ClaimedInstance>,
}

impl Elsewhere {
    async fn claims_all(store: &MemoryStore) -> Self {
        let worker = NewWorker {
            name: "elsewhere".to_owned(),
            lease: HOUR,
            process: None,
            roles: Roles::NONE,
        };
        let worker = store.register(worker).await.expect("registered");
        let request = ClaimRequest {
            worker,
            number: ClaimNumber::new(1),
            queue: QueueName::new("default").expect("valid"),
            machines: Arc::new([echo("").encode().expect("valid").machine]),
            limit: 1000,
        };
        let claimed = store.claim(request).await.expect("claimed").instances;
        let store = store.clone();
        Self {
            store,
            worker,
            claimed,
        }
    }

    /// Finishes the instance that was claimed last.
    async fn finishes_one(&mut self) -> InstanceId {
        let instance = self.claimed.pop().expect("one more");
        let result = Json::encode("from afar").expect("valid");
        let commit = Commit::of(&instance, Transition::Done { result });
        let request = CommitRequest::new(self.worker, [commit], Vec::new());
        let committed = self.store.commit(request).await.expect("committed");
        assert_eq!(committed.fates, [CommitFate::Committed]);
        instance.id
    }
}

async fn insert_many(client: &Client, count: usize) -> Vec<InstanceId> {
    let inserted = client.insert_all((0..count).map(|_| echo("x"))).await;
    inserted
        .expect("inserted")
        .into_iter()
        .map(durable_core::Inserted::id)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn all_waiters_of_a_process_cost_one_query_per_tick_and_none_when_nobody_waits() {
    // contract: WAIT-2
    let store = MemoryStore::new();
    let calls = || store.faults().calls(Call::Settlements);
    // No engine here: a client is enough.
    let client = client(&store);
    let ids = insert_many(&client, 100).await;
    let mut elsewhere = Elsewhere::claims_all(&store).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(calls(), 0, "nobody waits");
    let waiters: Vec<_> = ids
        .iter()
        .map(|id| {
            // A client of its own each, as in separate parts of a program.
            let (client, id) = (crate::engine_rules::client(&store), *id);
            tokio::spawn(async move {
                let result = client.result::<String>(id, HOUR).await;
                (result, Instant::now())
            })
        })
        .collect();
    tokio::time::sleep(TICK * 40).await;
    assert!(calls() <= 43, "{} queries in 40 ticks", calls());
    assert!(calls() >= 39, "{} queries in 40 ticks", calls());
    let mut ended = std::collections::BTreeMap::new();
    for _ in 0..100 {
        let id = elsewhere.finishes_one().await;
        ended.insert(id, Instant::now());
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    for (id, waiter) in ids.iter().zip(waiters) {
        let (result, told) = waiter.await.expect("joined");
        assert_eq!(result.expect("done"), "from afar");
        let late = told - ended[id];
        assert!(late <= TICK + Duration::from_millis(1), "{late:?} late");
    }
    let after = calls();
    assert!(after <= 43 + 700 / 25 + 2, "{after} queries");
    tokio::time::sleep(HOUR).await;
    assert_eq!(calls(), after, "nobody waits any more");
    let started = Instant::now();
    for id in ids {
        client.result::<String>(id, HOUR).await.expect("done");
    }
    assert_eq!(
        started.elapsed(),
        Duration::ZERO,
        "what has ended is there without a tick"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_while_it_looks_for_all_holds_nobody_up() {
    // contract: WAIT-2
    let store = MemoryStore::new();
    let client = client(&store);
    let ids = insert_many(&client, 2).await;
    let mut elsewhere = Elsewhere::claims_all(&store).await;
    store.faults().hold(Call::Settlements);
    let wait = |id: InstanceId| {
        let client = client.clone();
        tokio::spawn(async move { client.result::<String>(id, HOUR).await })
    };
    let first = wait(ids[0]);
    while store.faults().calls(Call::Settlements) == 0 {
        tokio::task::yield_now().await;
    }
    let second = wait(ids[1]);
    tokio::time::sleep(TICK).await;
    first.abort();
    store.faults().let_go(Call::Settlements);
    elsewhere.finishes_one().await;
    elsewhere.finishes_one().await;
    let result = tokio::time::timeout(TICK * 4, second).await.expect("in time");
    assert_eq!(result.expect("joined").expect("done"), "from afar");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_ends_no_wait_and_one_that_stays_away_is_told() {
    // contract: WAIT-1
    let store = MemoryStore::new();
    let client = client(&store);
    let ids = insert_many(&client, 1).await;
    let mut elsewhere = Elsewhere::claims_all(&store).await;
    for _ in 0..5 {
        store.faults().fail_next(Call::Settlements);
    }
    elsewhere.finishes_one().await;
    let result = client.result::<String>(ids[0], HOUR).await;
    assert_eq!(result.expect("done"), "from afar");
    for _ in 0..1000 {
        store.faults().fail_next(Call::Settlements);
    }
    let limit = Duration::from_secs(2);
    let started = Instant::now();
    let away = client.result::<String>(ids[0], limit).await;
    assert!(matches!(away, Err(WaitError::Store(_))), "{away:?}");
    assert_eq!(started.elapsed(), limit);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stops_leaves_no_waiter_hanging() {
    // contract: WAIT-2
    let store = MemoryStore::new();
    let client = client(&store);
    let engine = builder(&store)
        .queue("default")
        .machine::<Patient>()
        .start()
        .await
        .expect("started");
    let id = client
        .insert(Insert::machine(Patient))
        .await
        .expect("inserted")
        .id();
    let limit = Duration::from_secs(60);
    let started = Instant::now();
    let waiter = {
        let client = engine.client().clone();
        tokio::spawn(async move { client.result::<String>(id, limit).await })
    };
    engine.shutdown().await;
    let busy = waiter.await.expect("joined");
    assert!(matches!(busy, Err(WaitError::Busy { .. })), "{busy:?}");
    assert_eq!(started.elapsed(), limit);
}
