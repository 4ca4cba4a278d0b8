//! Cancellation and the other operations, while an engine runs.

use std::sync::Mutex;
use std::time::Duration;

use durable_core::store::{ClaimRequest, NewWorker, Operation, Roles, Store as _};
use durable_core::{
    ClaimNumber, Context, Engine, Failure, FailureKind, Insert, InstanceId, Machine, OperationFate,
    QueueName, Settled, Status, StepResult, Target, await_signal, done, retry, schedule_children, stop,
};
use durable_testing::memory::MemoryStore;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine_rules::{builder, client, snapshot, until};

const HOUR: Duration = Duration::from_secs(3600);

/// Which steps ran, as "test does".
static RAN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn runs(of: &str) -> usize {
    RAN.lock().expect("whole").iter().filter(|ran| *ran == of).count()
}

/// Does what it is told to do; belongs to a test.
#[derive(Serialize, Deserialize)]
struct Subject {
    test: String,
    does: String,
}

#[derive(Serialize, Deserialize)]
enum SubjectStep {
    First,
    Second,
}

impl Machine for Subject {
    const NAME: &'static str = "subject";
    type Step = SubjectStep;
    type Result = String;

    fn first_step() -> SubjectStep {
        SubjectStep::First
    }

    async fn step(self, step: SubjectStep, context: &Context) -> StepResult<Self> {
        let name = format!("{} {}", self.test, self.does);
        RAN.lock().expect("whole").push(name.clone());
        if matches!(step, SubjectStep::Second) {
            let fired = context.deadline_fired();
            return done(format!("second, deadline {fired}")).ok();
        }
        match self.does.as_str() {
            "hold" => {
                context.stopping().cancelled().await;
                let asked = context.cancel_requested();
                done(format!("told, cancelled {asked}")).ok()
            }
            "park" => await_signal("go", SubjectStep::Second, self)
                .timeout(24 * HOUR)
                .ok(),
            "retry" if context.attempt() == 0 => retry(self).after(24 * HOUR).ok(),
            "fail" if runs(&name) == 1 => stop("the first time").ok(),
            "parent" => {
                let children = ["hold", "middle"].map(|does| subject(&self.test, does));
                schedule_children(SubjectStep::Second, self)
                    .children(children)
                    .ok()
            }
            "middle" => {
                let child = subject(&self.test, "park");
                schedule_children(SubjectStep::Second, self).child(child).ok()
            }
            _ => done(format!("first, attempt {}", context.attempt())).ok(),
        }
    }
}

fn subject(test: &str, does: &str) -> Insert<String> {
    Insert::machine(Subject {
        test: test.to_owned(),
        does: does.to_owned(),
    })
}

async fn engine(store: &MemoryStore) -> Engine {
    let builder = builder(store).queue("default").machine::<Subject>();
    builder.start().await.expect("started")
}

fn cancelled(reason: &str) -> Settled<String> {
    Settled::Cancelled(Failure::new(FailureKind::Cancelled, reason))
}

#[tokio::test(start_paused = true)]
async fn a_running_step_is_told_at_once_and_ends_cancelled_whatever_it_returns() {
    // contract: CANCEL-1, CANCEL-2, FSM-6
    let store = MemoryStore::new();
    let (client, engine) = (client(&store), engine(&store).await);
    let insert = subject("told", "hold").correlation_key("one");
    let id = client.insert(insert).await.expect("inserted").id();
    until("it runs", || runs("told hold") == 1).await;
    let started = Instant::now();
    let key = || Target::key("one").expect("valid");
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.settled::<String>(id, HOUR).await }
    });
    let fate = client.cancel(key(), "not needed").await.expect("asked");
    assert_eq!(fate, OperationFate::Requested(id));
    let again = client.cancel(key(), "another reason").await.expect("asked");
    assert!(
        matches!(again, OperationFate::Requested(_) | OperationFate::NotFound),
        "{again:?}"
    );
    let settled = waiting.await.expect("joined").expect("settled");
    assert_eq!(settled, cancelled("not needed"), "the first reason counts");
    assert!(
        started.elapsed() < Duration::from_millis(100),
        "told in the same process, without a beat: {:?}",
        started.elapsed()
    );
    let fate = client.cancel(id, "too late").await.expect("asked");
    assert_eq!(fate, OperationFate::Unchanged(id, Status::Cancelled));
    let freed = client
        .insert(subject("told", "done").correlation_key("one"))
        .await;
    assert!(!freed.expect("inserted").is_duplicate(), "the key is free");
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_in_another_process_is_told_by_its_heartbeat() {
    // contract: CANCEL-1
    let store = MemoryStore::new();
    let (client, engine) = (client(&store), engine(&store).await);
    let id = client
        .insert(subject("afar", "hold"))
        .await
        .expect("inserted")
        .id();
    until("it runs", || runs("afar hold") == 1).await;
    let failure = Failure::new(FailureKind::Cancelled, "from afar");
    // As another process would: nobody here is told.
    let operated = store
        .operate(vec![id.into()], Operation::Cancel { failure })
        .await;
    assert_eq!(operated.expect("asked").fates, [OperationFate::Requested(id)]);
    let settled = client.settled::<String>(id, HOUR).await.expect("settled");
    assert_eq!(settled, cancelled("from afar"));
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn one_whose_worker_died_before_it_could_end_is_cancelled_without_running() {
    // contract: CANCEL-1, LEASE-2
    let store = MemoryStore::new();
    let client = client(&store);
    let id = client
        .insert(subject("died", "done"))
        .await
        .expect("inserted")
        .id();
    let worker = NewWorker {
        name: "doomed".to_owned(),
        lease: Duration::from_secs(1),
        process: None,
        roles: Roles::ALL,
    };
    let worker = store.register(worker).await.expect("registered");
    let request = ClaimRequest {
        worker,
        number: ClaimNumber::new(1),
        queue: QueueName::new("default").expect("valid"),
        machines: std::sync::Arc::new([subject("died", "done").encode().expect("valid").machine]),
        limit: 1,
    };
    assert_eq!(store.claim(request).await.expect("claimed").instances.len(), 1);
    let fate = client.cancel(id, "never mind").await.expect("asked");
    assert_eq!(fate, OperationFate::Requested(id));
    let engine = engine(&store).await;
    let settled = client.settled::<String>(id, HOUR).await.expect("settled");
    assert_eq!((settled, runs("died done")), (cancelled("never mind"), 0));
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_whole_tree_is_cancelled_level_by_level() {
    // contract: CANCEL-1, CANCEL-2
    let store = MemoryStore::new();
    let (client, engine) = (client(&store), engine(&store).await);
    let id = client
        .insert(subject("tree", "parent"))
        .await
        .expect("inserted")
        .id();
    // The parent, its two children, and the child of one of them.
    let tree: Vec<InstanceId> = (id.get()..id.get() + 4).map(InstanceId::new).collect();
    let all = ["tree parent", "tree hold", "tree middle", "tree park"];
    until("all have run", || all.iter().all(|one| runs(one) == 1)).await;
    for parked in [id, tree[3]] {
        client.settled::<String>(parked, HOUR).await.expect("settled");
    }
    let fates = client.cancel_with_children(id, "all of it").await.expect("asked");
    assert_eq!(fates.len(), 4);
    assert_eq!(fates[0], OperationFate::Applied(id), "the target first");
    for one in tree {
        let settled = client.settled::<String>(one, HOUR).await.expect("settled");
        assert_eq!(settled, cancelled("all of it"));
    }
    let again = client.cancel_with_children(id, "again").await.expect("asked");
    assert_eq!(again, [OperationFate::Unchanged(id, Status::Cancelled)]);
    let missing = InstanceId::new(999_999);
    let fates = client.cancel_all(vec![missing.into(), id.into()], "both").await;
    let unchanged = OperationFate::Unchanged(id, Status::Cancelled);
    assert_eq!(fates.expect("asked"), [OperationFate::NotFound, unchanged]);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_wakes_runs_at_once() {
    // contract: CANCEL-3
    let store = MemoryStore::new();
    let (client, engine) = (client(&store), engine(&store).await);
    let mut ids = Vec::new();
    for does in ["park", "park", "retry", "fail"] {
        ids.push(
            client
                .insert(subject("operator", does))
                .await
                .expect("inserted")
                .id(),
        );
    }
    let [woken, fired, retried, failed] = ids[..] else {
        panic!("four")
    };
    client.settled::<String>(failed, HOUR).await.expect("settled");
    while snapshot(&client, retried).await.attempt == 0 {
        tokio::task::yield_now().await;
    }
    for parked in [woken, fired] {
        let settled = client.settled::<String>(parked, HOUR).await.expect("settled");
        assert_eq!(settled, Settled::Parked);
    }
    // Past the first polls, so that only a poke can be this fast.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let started = Instant::now();
    assert_eq!(
        client.wake(woken).await.expect("asked"),
        OperationFate::Applied(woken)
    );
    let fate = client.fire_deadline(fired).await.expect("asked");
    assert_eq!(fate, OperationFate::Applied(fired));
    let fate = client.retry_now(retried).await.expect("asked");
    assert_eq!(fate, OperationFate::Applied(retried));
    let fate = client.restart(failed).await.expect("asked");
    assert_eq!(fate, OperationFate::Applied(failed));
    let mut said = Vec::new();
    for id in ids {
        said.push(client.result::<String>(id, HOUR).await.expect("done"));
    }
    let expected = [
        "second, deadline false",
        "second, deadline true",
        "first, attempt 1",
        "first, attempt 0",
    ];
    assert_eq!(said, expected);
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    let done = client.restart(failed).await.expect("asked");
    assert_eq!(done, OperationFate::Unchanged(failed, Status::Done));
    engine.shutdown().await;
}
