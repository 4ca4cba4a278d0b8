//! The metrics that an engine emits: every name that is documented, with bounded labels (rule OPS-6).

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use durable_core::store::Store as _;
use durable_core::{
    Client, Context, Insert, InstanceId, Job, JobError, Machine, Retention, Status, StepResult, WaitError,
    await_signal, done, next, observe, schedule_children,
};
use durable_testing::MemoryPokes;
use durable_testing::memory::{Call, MemoryStore};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde::{Deserialize, Serialize};

use crate::engine_rules::{builder, client};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Serialize, Deserialize)]
struct Chore {
    fails: bool,
    lingers: bool,
}

impl Job for Chore {
    const NAME: &'static str = "chore";
    const MAX_ATTEMPTS: u32 = 2;
    type Output = ();

    async fn perform(&self, context: &Context) -> Result<(), JobError> {
        if self.lingers && context.attempt() == 0 {
            context.stopping().cancelled().await;
        }
        if self.fails { Err("a chore".into()) } else { Ok(()) }
    }
}

fn chore(fails: bool, lingers: bool) -> Insert<()> {
    Insert::job(Chore { fails, lingers })
}

/// Runs a scenario under paused time, with all of it on this thread, where the recorder is.
fn recorded(scenario: impl Future<Output = ()>) -> Snapshotter {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(scenario);
    });
    snapshotter
}

/// The sum of a counter over all of its labels.
fn total(values: &[(String, BTreeMap<String, String>, DebugValue)], name: &str) -> u64 {
    let counters = values.iter().filter(|(named, _, _)| named == name);
    counters
        .map(|(_, _, value)| match value {
            DebugValue::Counter(count) => *count,
            _ => 0,
        })
        .sum()
}

fn values(snapshotter: &Snapshotter) -> Vec<(String, BTreeMap<String, String>, DebugValue)> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    all.map(|(key, _, _, value)| {
        let (name, labels) = key.key().clone().into_parts();
        let labels = labels
            .iter()
            .map(|label| (label.key().to_owned(), label.value().to_owned()));
        (name.as_str().to_owned(), labels.collect(), value)
    })
    .collect()
}

/// Runs ahead, waits for a signal until its deadline, and for a child.
#[derive(Serialize, Deserialize)]
struct Route;

#[derive(Serialize, Deserialize)]
enum RouteStep {
    Start,
    Wait,
    Fork,
    End,
}

impl Machine for Route {
    const NAME: &'static str = "route";
    const QUEUE: &'static str = "chores";
    type Step = RouteStep;
    type Result = ();

    fn first_step() -> RouteStep {
        RouteStep::Start
    }

    async fn step(self, step: RouteStep, _context: &Context) -> StepResult<Self> {
        match step {
            RouteStep::Start => next(RouteStep::Wait, self).ahead().ok(),
            RouteStep::Wait => await_signal("go", RouteStep::Fork, self)
                .timeout(Duration::from_secs(5))
                .ok(),
            RouteStep::Fork => schedule_children(RouteStep::End, self)
                .child(chore(false, false).queue("chores"))
                .ok(),
            RouteStep::End => done(()).ok(),
        }
    }
}

/// A job that no engine here knows.
#[derive(Serialize, Deserialize)]
struct Unknown;

impl Job for Unknown {
    const NAME: &'static str = "unknown";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

async fn until_executing(client: &Client, id: InstanceId) {
    while client.snapshot(id).await.expect("read").expect("there").status != Status::Executing {
        tokio::task::yield_now().await;
    }
}

/// Everything that an engine reports happens once: good and bad outcomes, lost answers, lost leases.
async fn eventful() {
    let store = MemoryStore::new();
    let (faults, client, pokes) = (store.faults(), client(&store), MemoryPokes::new());
    let engine = builder(&store)
        .queue("chores")
        .job::<Chore>()
        .machine::<Route>()
        .lease(Duration::from_secs(8))
        .poke(pokes.node())
        .retention(Retention {
            failed: Duration::ZERO,
            ..Retention::default()
        })
        .start()
        .await
        .expect("started");
    let insert = |fails, lingers| client.insert(chore(fails, lingers).queue("chores").correlation_key("one"));
    faults.lose_next_answer(Call::Claim);
    let first = insert(false, false).await.expect("inserted").id();
    assert!(insert(false, false).await.expect("answered").is_duplicate());
    client.result::<()>(first, HOUR).await.expect("done");

    let route = client.insert(Insert::machine(Route)).await.expect("inserted");
    client.result::<()>(route.id(), HOUR).await.expect("done");

    pokes.inject(br#"{"from":1,"pokes":["anything"]}"#);
    pokes.inject(b"not a message");
    tokio::time::sleep(Duration::from_secs(1)).await;
    pokes.cut();

    faults.fail_next(Call::Claim);
    faults.lose_next_answer(Call::Commit);
    let second = insert(false, false).await.expect("inserted").id();
    client.result::<()>(second, HOUR).await.expect("done");

    let failing = insert(true, false).await.expect("inserted").id();
    let answer = client.result::<()>(failing, HOUR).await;
    assert!(
        matches!(answer, Err(WaitError::Failed { .. } | WaitError::NotFound { .. })),
        "{answer:?}"
    );

    let locked = insert(false, true).await.expect("inserted").id();
    until_executing(&client, locked).await;
    store.declare_dead(vec![engine.worker()]).await.expect("declared");
    client
        .result::<()>(locked, HOUR)
        .await
        .expect("done by the new worker");

    faults.refuse_commits(|commit| matches!(commit.transition, durable_core::store::Transition::Done { .. }));
    let refused = insert(false, false).await.expect("inserted").id();
    let answer = client.result::<()>(refused, HOUR).await;
    assert!(answer.is_err(), "{answer:?}");
    faults.clear();

    let set_aside = insert(false, true).await.expect("inserted").id();
    until_executing(&client, set_aside).await;
    let unknown = Insert::job(Unknown).queue("chores");
    client.insert(unknown).await.expect("inserted");
    // The collector looks every ten seconds, the surveyor once a minute.
    tokio::time::sleep(Duration::from_secs(70)).await;
    faults.lock(set_aside);
    let shutdown = tokio::spawn(engine.shutdown());
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.unlock(set_aside);
    shutdown.await.expect("shut down");
}

#[test]
fn every_documented_metric_is_emitted_and_its_labels_are_bounded() {
    // contract: OPS-6, FSM-5
    let snapshotter = recorded(eventful());
    let values = values(&snapshotter);
    let emitted: BTreeSet<&str> = values.iter().map(|(name, _, _)| name.as_str()).collect();
    let documented = [
        observe::POKE_MESSAGES,
        observe::POKE_FAILURES,
        observe::POKE_DROPPED,
        observe::POKE_PEERS,
        observe::POKE_CONNECTED,
        observe::INSERTED,
        observe::CLAIMED,
        observe::CLAIMS,
        observe::CLAIM_SECONDS,
        observe::COMMITTED,
        observe::STALE,
        observe::LOCKED,
        observe::REFUSED,
        observe::COMMIT_SIZE,
        observe::COMMIT_SECONDS,
        observe::STEP_SECONDS,
        observe::IN_FLIGHT,
        observe::UNKNOWN_MACHINES,
        observe::REAPED,
        observe::WORKERS_DEAD,
        observe::LEASES_LOST,
        observe::CLAIMS_RECOVERED,
        observe::COLLECTED,
        observe::KEYS_FORGOTTEN,
        observe::DEADLINES_FIRED,
        observe::STORE_ERRORS,
    ];
    assert_eq!(emitted, BTreeSet::from(documented));
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("queue", ["chores"].as_slice()),
        ("machine", &["chore", "route"]),
        (
            "transition",
            &[
                "next",
                "ahead",
                "await",
                "schedule_children",
                "retry",
                "give_back",
                "done",
                "failed",
                "cancelled",
            ],
        ),
        ("transport", &["memory"]),
        ("reason", &["malformed"]),
        (
            "result",
            &["found", "empty", "failed", "sent", "received", "echo"],
        ),
        (
            "call",
            &[
                "claim",
                "commit",
                "release",
                "beat",
                "register",
                "reap",
                "collect",
                "resolve",
                "retire",
                "survey",
                "expire",
                "settlements",
                "commit_transaction",
            ],
        ),
        (
            "kind",
            &["transient", "unknown", "refused", "worker_dead", "fatal"],
        ),
    ]);
    for (name, labels, _) in &values {
        for (label, value) in labels {
            let known = allowed
                .get(label.as_str())
                .is_some_and(|known| known.contains(&value.as_str()));
            assert!(known, "{name}: label {label} = {value:?}");
        }
    }
    for transition in ["ahead", "await", "schedule_children"] {
        let counted = values.iter().any(|(name, labels, _)| {
            name == observe::COMMITTED && labels.get("transition").is_some_and(|it| it == transition)
        });
        assert!(counted, "{transition}");
    }
    for result in ["sent", "received", "echo"] {
        let counted = values.iter().any(|(name, labels, _)| {
            name == observe::POKE_MESSAGES && labels.get("result").is_some_and(|it| it == result)
        });
        assert!(counted, "{result}");
    }
    for happened in [
        observe::POKE_FAILURES,
        observe::STALE,
        observe::LOCKED,
        observe::REFUSED,
        observe::LEASES_LOST,
        observe::CLAIMS_RECOVERED,
        observe::COLLECTED,
        observe::DEADLINES_FIRED,
    ] {
        assert!(total(&values, happened) > 0, "{happened} counted nothing");
    }
    assert_eq!(total(&values, observe::INSERTED), 8, "duplicates are not counted");
    let unknown = values
        .iter()
        .find(|(name, _, _)| name == observe::UNKNOWN_MACHINES);
    assert_eq!(
        unknown.map(|(_, _, value)| value),
        Some(&DebugValue::Gauge(1.0.into())),
        "contract FSM-5: a machine that the worker does not know is counted"
    );
    let in_flight = values.iter().find(|(name, _, _)| name == observe::IN_FLIGHT);
    let in_flight = in_flight.map(|(_, _, value)| value);
    assert_eq!(
        in_flight,
        Some(&DebugValue::Gauge(0.0.into())),
        "nothing is left in flight"
    );
}

#[test]
fn a_commit_whose_answer_was_lost_is_counted_once_and_as_committed() {
    // contract: OUT-3, OPS-6
    let snapshotter = recorded(async {
        let store = MemoryStore::new();
        let client = client(&store);
        let engine = builder(&store)
            .queue("default")
            .job::<Chore>()
            .start()
            .await
            .expect("started");
        for _ in 0..5 {
            store.faults().lose_next_answer(Call::Commit);
            store.faults().fail_next(Call::Commit);
        }
        store.faults().fail_next(Call::Resolve);
        let inserts = (0..3).map(|_| chore(false, false));
        let inserted = client.insert_all(inserts).await.expect("inserted");
        for inserted in inserted {
            client.result::<()>(inserted.id(), HOUR).await.expect("done");
        }
        // What was committed is in the store at once; that its fate is known comes later.
        tokio::time::sleep(HOUR).await;
        engine.shutdown().await;
    });
    let values = values(&snapshotter);
    assert_eq!(
        (total(&values, observe::COMMITTED), total(&values, observe::STALE)),
        (3, 0)
    );
}
