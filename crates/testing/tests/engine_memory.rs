//! The runtime over the in-memory model: the whole path from insert to terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use durable_core::{
    Client, Context, Engine, FailureKind, Insert, Inserted, Job, JobError, Machine, Queue, StartError,
    Status, StepResult, Store, WaitError, done, next, retry,
};
use durable_testing::memory::MemoryStore;
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(3600);

#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
    charged: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderStep {
    Charge,
    Ship,
}

impl Machine for Order {
    const NAME: &'static str = "order";
    type Step = OrderStep;
    type Result = String;

    fn first_step() -> OrderStep {
        OrderStep::Charge
    }

    async fn step(mut self, step: OrderStep, context: &Context) -> StepResult<Self> {
        match step {
            OrderStep::Charge if context.attempt() < 2 => retry(self).after(Duration::from_secs(5)).ok(),
            OrderStep::Charge => {
                self.charged = true;
                next(OrderStep::Ship, self).ok()
            }
            OrderStep::Ship => {
                assert!(self.charged, "the state of the step before is there");
                done(format!("shipped {}", self.number)).ok()
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Fault {
    kind: String,
}

impl Job for Fault {
    const NAME: &'static str = "fault";
    const MAX_ATTEMPTS: u32 = 3;
    type Output = String;

    async fn perform(&self, _context: &Context) -> Result<String, JobError> {
        match self.kind.as_str() {
            "panic" => panic!("a fault"),
            "error" => Err("an error".into()),
            "cancel" => Err(JobError::cancel("not needed")),
            "nul" => Ok("a\0b".to_owned()),
            "hang" => std::future::pending().await,
            _ => Ok("fine".to_owned()),
        }
    }

    fn timeout() -> Option<Duration> {
        Some(Duration::from_secs(60))
    }
}

fn store() -> (MemoryStore, Arc<dyn Store>) {
    let memory = MemoryStore::new();
    (memory.clone(), Arc::new(memory))
}

async fn engine(store: &Arc<dyn Store>) -> Engine {
    Engine::builder(Arc::clone(store))
        .queue("default")
        .machine::<Order>()
        .job::<Fault>()
        .heartbeat_thread(false)
        .start()
        .await
        .expect("the engine starts")
}

#[tokio::test(start_paused = true)]
async fn a_machine_runs_from_insert_to_result() {
    // contract: FSM-1, FSM-3, FSM-6, CORE-1
    let (_memory, store) = store();
    let engine = engine(&store).await;
    let client = engine.client();
    let inserted = client
        .insert(Insert::machine(Order {
            number: 7,
            charged: false,
        }))
        .await
        .expect("inserted");
    let result: String = client.result(inserted.id(), LIMIT).await.expect("a result");
    assert_eq!(result, "shipped 7");
    let snapshot = client
        .snapshot(inserted.id())
        .await
        .expect("read")
        .expect("there");
    assert_eq!(
        (snapshot.status, snapshot.attempt, snapshot.step.as_str()),
        (Status::Done, 0, "ship")
    );
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn every_fault_of_a_job_ends_as_it_should_and_harms_no_other() {
    // contract: FSM-2, FSM-4, OUT-2
    let (_memory, store) = store();
    let engine = engine(&store).await;
    let client = engine.client();
    let kinds = ["panic", "error", "cancel", "nul", "hang", "none"];
    let inserts = kinds.map(|kind| {
        Insert::job(Fault {
            kind: kind.to_owned(),
        })
    });
    let inserted = client.insert_all(inserts).await.expect("inserted");
    let mut ends = Vec::new();
    for (kind, inserted) in kinds.iter().zip(&inserted) {
        let end = match client.result::<String>(inserted.id(), LIMIT).await {
            Ok(_) => None,
            Err(WaitError::Failed { failure, .. }) => Some(failure.kind),
            Err(other) => panic!("{kind}: {other}"),
        };
        let snapshot = client
            .snapshot(inserted.id())
            .await
            .expect("read")
            .expect("there");
        ends.push((*kind, snapshot.status, end, snapshot.attempt));
    }
    assert_eq!(
        ends,
        [
            ("panic", Status::Failed, Some(FailureKind::Panic), 2),
            ("error", Status::Failed, Some(FailureKind::Error), 2),
            ("cancel", Status::Cancelled, Some(FailureKind::Cancelled), 0),
            ("nul", Status::Failed, Some(FailureKind::Encoding), 0),
            ("hang", Status::Failed, Some(FailureKind::Timeout), 2),
            ("none", Status::Done, None, 0),
        ]
    );
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_insert_of_a_key_is_a_duplicate_until_the_first_is_done() {
    // contract: ID-1, ID-2, ID-3
    let (_memory, store) = store();
    let client = Client::new(Arc::clone(&store));
    let order = || {
        Insert::machine(Order {
            number: 1,
            charged: false,
        })
        .correlation_key("order-1")
    };
    let first = client.insert(order()).await.expect("inserted");
    assert_eq!(
        client.insert(order()).await.expect("answered"),
        Inserted::Duplicate(first.id())
    );
    let engine = engine(&store).await;
    client
        .result::<String>(first.id(), LIMIT)
        .await
        .expect("a result");
    assert!(!client.insert(order()).await.expect("inserted").is_duplicate());
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn configuration_faults_are_listed_together_and_nothing_is_done() {
    // contract: OPS-7
    let (_memory, store) = store();
    let error = Engine::builder(Arc::clone(&store))
        .queue(Queue::new("").concurrency(0))
        .machine::<Order>()
        .machine::<Order>()
        .lease(Duration::ZERO)
        .start()
        .await
        .err()
        .expect("refused");
    let StartError::Configuration { faults } = error else {
        panic!("{error}")
    };
    let text = faults.join("\n");
    for option in ["queue", "concurrency", "order v1 is registered twice", "lease"] {
        assert!(text.contains(option), "{option} is missing in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_engines_of_one_name_are_refused_and_the_name_is_free_after_a_shutdown() {
    // contract: OPS-1
    let (_memory, store) = store();
    let first = engine(&store).await;
    let second = Engine::builder(Arc::clone(&store)).start().await;
    assert!(matches!(second.err(), Some(StartError::NameTaken { .. })));
    let other = Engine::builder(Arc::clone(&store))
        .name("other")
        .start()
        .await
        .expect("another name");
    other.shutdown().await;
    first.shutdown().await;
    engine(&store).await.shutdown().await;
}

static STARTED: AtomicU32 = AtomicU32::new(0);

#[derive(Serialize, Deserialize)]
struct Endless;

impl Job for Endless {
    const NAME: &'static str = "endless";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        STARTED.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_what_does_not_end_without_an_attempt() {
    // contract: OPS-2
    let (_memory, store) = store();
    let engine = Engine::builder(Arc::clone(&store))
        .queue("default")
        .job::<Endless>()
        .heartbeat_thread(false)
        .start()
        .await
        .expect("started");
    let client = engine.client().clone();
    let id = client.insert(Insert::job(Endless)).await.expect("inserted").id();
    while STARTED.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    engine.shutdown().await;
    let snapshot = client.snapshot(id).await.expect("read").expect("there");
    assert_eq!(
        (snapshot.status, snapshot.attempt, snapshot.crashes),
        (Status::Runnable, 0, 0)
    );
}
