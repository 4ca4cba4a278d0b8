//! What becomes of a machine whose step, outcome, error handler or stored state is at fault (rule FSM-4).

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{ClaimRequest, NewInstance, NewWorker};
use durable_core::{
    ClaimNumber, Client, Context, Engine, Failure, FailureKind, Insert, InstanceId, Json, MAX_DURATION,
    MAX_JSON_BYTES, Machine, QueueName, Snapshot, Status, StepResult, Store, WaitError, await_signal,
    await_signals, cancel, done, next, retry, schedule_children, stop,
};
use durable_testing::memory::MemoryStore;
use serde::{Deserialize, Serialize, Serializer};

const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// A text that serde refuses when it says so.
#[derive(Deserialize, Default)]
struct Text(String);

const UNSERIALISABLE: &str = "serde refuses this";

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == UNSERIALISABLE {
            return Err(serde::ser::Error::custom("it cannot be written"));
        }
        serializer.serialize_str(&self.0)
    }
}

/// A machine whose step fails for `cause`, and whose error handler answers as `handler` says.
#[derive(Serialize, Deserialize, Default)]
struct Faulty {
    cause: String,
    handler: String,
    text: Text,
    failure: Option<Failure>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FaultyStep {
    Work,
    Recover,
    NotAName(u32),
}

impl Machine for Faulty {
    const NAME: &'static str = "faulty";
    const MAX_CRASHES: u32 = 2;
    type Step = FaultyStep;
    type Result = Text;

    fn first_step() -> FaultyStep {
        FaultyStep::Work
    }

    fn timeout(_step: &FaultyStep) -> Option<Duration> {
        Some(Duration::from_secs(60))
    }

    async fn step(mut self, step: FaultyStep, _context: &Context) -> StepResult<Self> {
        if matches!(step, FaultyStep::Recover) {
            return done(Text(serde_json::to_string(&self.failure)?)).ok();
        }
        let too_long = MAX_DURATION + Duration::from_secs(1);
        match self.cause.as_str() {
            "error" => return Err("the vendor said no".into()),
            "panic" => panic!("the {} fell over", "machine"),
            "timeout" => std::future::pending().await,
            "nul in state" => self.text = Text("a\0b".to_owned()),
            "large state" => self.text = Text("x".repeat(MAX_JSON_BYTES)),
            "state that serde refuses" => self.text = Text(UNSERIALISABLE.to_owned()),
            "nul in result" => return done(Text("a\0b".to_owned())).ok(),
            "large result" => return done(Text("x".repeat(MAX_JSON_BYTES))).ok(),
            "result that serde refuses" => return done(Text(UNSERIALISABLE.to_owned())).ok(),
            "step that is no name" => return next(FaultyStep::NotAName(7), self).ok(),
            "long delay of next" => return next(FaultyStep::Recover, self).after(too_long).ok(),
            "long delay of retry" => return retry(self).after(too_long).ok(),
            "wait for nothing" => return await_signals([""; 0], FaultyStep::Recover, self).ok(),
            "wait without a name" => return await_signal("", FaultyStep::Recover, self).ok(),
            "long wait" => {
                return await_signal("go", FaultyStep::Recover, self)
                    .timeout(too_long)
                    .ok();
            }
            cause if cause.starts_with("children") => return self.children(),
            other => return stop(format!("no such cause: {other}")).ok(),
        }
        next(FaultyStep::Recover, self).ok()
    }

    async fn on_error(mut self, _step: FaultyStep, failure: &Failure, context: &Context) -> StepResult<Self> {
        self.failure = Some(failure.clone());
        match self.handler.as_str() {
            "next" => next(FaultyStep::Recover, self).ok(),
            "done" => done(Text("handled".to_owned())).ok(),
            "stop" => stop("given up").ok(),
            "cancel" => cancel("not wanted").ok(),
            "retry" if context.attempt() < 2 => retry(self).after(Duration::from_secs(5)).ok(),
            "retry" => done(Text(format!("attempt {}", context.attempt()))).ok(),
            "error" => Err("the handler failed".into()),
            "panic" => panic!("the handler fell over"),
            "timeout" => std::future::pending().await,
            "nul" => done(Text("c\0d".to_owned())).ok(),
            other => stop(format!("no such handler: {other}")).ok(),
        }
    }
}

impl Faulty {
    /// Children with a fault.
    fn children(self) -> StepResult<Self> {
        let too_long = MAX_DURATION + Duration::from_secs(1);
        let cause = self.cause.clone();
        let child = || faulty("", "");
        let children = schedule_children(FaultyStep::Recover, self).child(child());
        match cause.as_str() {
            "children, first of none" => children.first(0).ok(),
            "children for long" => children.timeout(too_long).ok(),
            "children, bad queue" => children.child(child().queue("")).child(child()).ok(),
            _ => children.child(child().run_in(too_long)).ok(),
        }
    }
}

fn faulty(cause: &str, handler: &str) -> Insert<Text> {
    Insert::machine(Faulty {
        cause: cause.to_owned(),
        handler: handler.to_owned(),
        ..Faulty::default()
    })
}

async fn engine(store: &MemoryStore) -> Engine {
    Engine::builder(Arc::new(store.clone()) as Arc<dyn Store>)
        .queue("default")
        .machine::<Faulty>()
        .heartbeat_thread(false)
        .start()
        .await
        .expect("started")
}

async fn settled(client: &Client, id: InstanceId) -> (Snapshot, Result<Text, WaitError>) {
    let result = client.result(id, LIMIT).await;
    (client.snapshot(id).await.expect("read").expect("there"), result)
}

#[tokio::test(start_paused = true)]
async fn each_cause_reaches_the_error_handler_whose_outcome_counts() {
    // contract: FSM-4
    let store = MemoryStore::new();
    let engine = engine(&store).await;
    let causes = [
        ("error", FailureKind::Error, "the vendor said no"),
        ("panic", FailureKind::Panic, "machine_failures.rs"),
        ("panic", FailureKind::Panic, "the machine fell over"),
        ("timeout", FailureKind::Timeout, "60s"),
        ("nul in state", FailureKind::Encoding, "U+0000"),
        ("large state", FailureKind::Encoding, "the limit is 16777216"),
        (
            "state that serde refuses",
            FailureKind::Encoding,
            "cannot be written",
        ),
        ("nul in result", FailureKind::Encoding, "U+0000"),
        ("large result", FailureKind::Encoding, "the limit is 16777216"),
        (
            "result that serde refuses",
            FailureKind::Encoding,
            "cannot be written",
        ),
        ("step that is no name", FailureKind::Encoding, "plain string"),
        (
            "long delay of next",
            FailureKind::Encoding,
            "the delay of next lies",
        ),
        (
            "long delay of retry",
            FailureKind::Encoding,
            "the delay of retry lies",
        ),
        ("wait for nothing", FailureKind::Encoding, "at least one"),
        (
            "wait without a name",
            FailureKind::Encoding,
            "signal name is empty",
        ),
        (
            "long wait",
            FailureKind::Encoding,
            "the timeout of await_signals lies",
        ),
        (
            "children, first of none",
            FailureKind::Encoding,
            "the first 0 children",
        ),
        (
            "children for long",
            FailureKind::Encoding,
            "the timeout of schedule_children lies",
        ),
        (
            "children, bad queue",
            FailureKind::Encoding,
            "child 1 of schedule_children (counted from 0) cannot be inserted: queue is empty",
        ),
        (
            "children, bad time",
            FailureKind::Encoding,
            "cannot be inserted: run_in lies",
        ),
    ];
    for (cause, kind, message) in causes {
        let inserted = engine
            .client()
            .insert(faulty(cause, "next"))
            .await
            .expect("inserted");
        let (snapshot, result) = settled(engine.client(), inserted.id()).await;
        let text = result.unwrap_or_else(|error| panic!("{cause}: {error}")).0;
        let failure: Option<Failure> = serde_json::from_str(&text).expect("a failure");
        let failure = failure.expect("the handler saw a failure");
        assert_eq!(failure.kind, kind, "{cause}: {failure}");
        assert!(failure.message.contains(message), "{cause}: {failure}");
        assert_eq!(
            (snapshot.step.as_str(), snapshot.attempt),
            ("recover", 0),
            "{cause}"
        );
    }
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_handler_may_return_any_outcome() {
    // contract: FSM-4, FSM-3
    let store = MemoryStore::new();
    let engine = engine(&store).await;
    let ends = [
        ("done", Status::Done, "handled"),
        ("stop", Status::Failed, "given up"),
        ("cancel", Status::Cancelled, "not wanted"),
        ("retry", Status::Done, "attempt 2"),
    ];
    for (handler, status, text) in ends {
        let inserted = engine
            .client()
            .insert(faulty("error", handler))
            .await
            .expect("inserted");
        let (snapshot, result) = settled(engine.client(), inserted.id()).await;
        let said = match result {
            Ok(Text(text)) => text,
            Err(WaitError::Failed { failure, .. }) => failure.message,
            Err(other) => panic!("{handler}: {other}"),
        };
        assert_eq!((snapshot.status, said.as_str()), (status, text), "{handler}");
    }
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_too_fails_the_instance_with_both_reasons() {
    // contract: FSM-4
    let store = MemoryStore::new();
    let engine = engine(&store).await;
    for (handler, second) in [
        ("error", "the handler failed"),
        ("panic", "the handler fell over"),
        ("timeout", "60s"),
        ("nul", "U+0000"),
    ] {
        let inserted = engine
            .client()
            .insert(faulty("error", handler))
            .await
            .expect("inserted");
        let (snapshot, _) = settled(engine.client(), inserted.id()).await;
        let failure = snapshot.failure.expect("a failure");
        assert_eq!(
            (snapshot.status, failure.kind),
            (Status::Failed, FailureKind::Error),
            "{handler}"
        );
        assert!(
            failure.message.contains("the vendor said no"),
            "{handler}: {failure}"
        );
        assert!(failure.message.contains(second), "{handler}: {failure}");
    }
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_decoded_backs_off_then_fails_with_its_raw_json_kept() {
    // contract: FSM-4
    let store = MemoryStore::new();
    let whole = faulty("error", "done").encode().expect("valid");
    let raw = r#"{"cause":7,"of":"an older version"}"#;
    let bad_state = NewInstance {
        state: Json::from_store(raw.to_owned()),
        ..whole.clone()
    };
    let bad_step = NewInstance {
        step: "gone".to_owned(),
        ..whole.clone()
    };
    let inserted = store
        .insert(vec![bad_state, bad_step, whole])
        .await
        .expect("inserted");
    let engine = engine(&store).await;
    for (inserted, what) in inserted.iter().zip(["state", "step"]) {
        let (snapshot, _) = settled(engine.client(), inserted.id()).await;
        let failure = snapshot.failure.expect("a failure");
        assert_eq!(
            (snapshot.status, failure.kind),
            (Status::Failed, FailureKind::Decoding)
        );
        assert!(failure.message.contains(&format!("stored {what}")), "{failure}");
        assert_eq!(
            snapshot.attempt, 4,
            "tried five times, with the backoff of jobs between"
        );
    }
    let (state, _) = settled(engine.client(), inserted[0].id()).await;
    assert_eq!(state.state.as_str(), raw);
    let (other, _) = settled(engine.client(), inserted[2].id()).await;
    assert_eq!(other.status, Status::Done, "no other instance is harmed");
    engine.shutdown().await;
}

/// Lets a worker die while it holds everything that is runnable.
async fn crash(store: &MemoryStore, number: i64) {
    let lease = Duration::from_secs(1);
    let worker = NewWorker {
        name: "doomed".to_owned(),
        lease,
        process: None,
        roles: durable_core::store::Roles::ALL,
    };
    let worker = store.register(worker).await.expect("registered");
    let request = ClaimRequest {
        worker,
        number: ClaimNumber::new(number),
        queue: QueueName::new("default").expect("valid"),
        machines: Arc::new([faulty("", "").encode().expect("valid").machine]),
        limit: 10,
    };
    assert_eq!(store.claim(request).await.expect("claimed").instances.len(), 1);
    tokio::time::advance(lease * 2).await;
    assert_eq!(store.reap(10).await.expect("reaped").instances, 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_keeps_killing_its_worker_goes_to_the_error_handler() {
    // contract: FSM-4, LEASE-2
    let store = MemoryStore::new();
    let client = Client::new(Arc::new(store.clone()) as Arc<dyn Store>);
    let handled = client.insert(faulty("panic", "next")).await.expect("inserted");
    crash(&store, 1).await;
    crash(&store, 2).await;
    let first = engine(&store).await;
    let text = settled(&client, handled.id())
        .await
        .1
        .expect("the handler's outcome")
        .0;
    let failure: Option<Failure> = serde_json::from_str(&text).expect("a failure");
    let failure = failure.expect("a failure");
    assert_eq!(failure.kind, FailureKind::Crash);
    assert!(failure.message.contains("2 times in a row"), "{failure}");
    first.shutdown().await;

    let killer = client.insert(faulty("panic", "next")).await.expect("inserted");
    for number in 1..=3 {
        crash(&store, number).await;
    }
    let second = engine(&store).await;
    let (snapshot, _) = settled(&client, killer.id()).await;
    let failure = snapshot.failure.expect("a failure");
    assert_eq!(
        (snapshot.status, failure.kind),
        (Status::Failed, FailureKind::Crash),
        "its error handler killed a worker too"
    );
    second.shutdown().await;
}
