//! The inline drain: delays, limits, and what it leaves behind.

use std::sync::OnceLock;
use std::time::Duration;

use durable_core::{
    Client, Context, Engine, EngineBuilder, Failure, Insert, Job, JobError, Machine, StepResult,
    await_signal, done, next, retry, schedule_children,
};
use durable_testing::{MemoryStore, assert_instance};
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
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
    type Result = u64;

    fn first_step() -> OrderStep {
        OrderStep::Charge
    }

    async fn step(self, step: OrderStep, context: &Context) -> StepResult<Self> {
        match step {
            OrderStep::Charge if context.attempt() < 2 => retry(self).after(HOUR).ok(),
            OrderStep::Charge => next(OrderStep::Ship, self).after(HOUR).ok(),
            OrderStep::Ship => done(self.number).ok(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Loops;

impl Machine for Loops {
    const NAME: &'static str = "loops";
    type Step = OrderStep;
    type Result = ();

    fn first_step() -> OrderStep {
        OrderStep::Charge
    }

    async fn step(self, _step: OrderStep, _context: &Context) -> StepResult<Self> {
        Err("always".into())
    }

    async fn on_error(self, _step: OrderStep, failure: &Failure, _context: &Context) -> StepResult<Self> {
        retry(self).after(HOUR).because(failure.clone()).ok()
    }
}

/// Fails until its third try; waits an hour more each time.
#[derive(Serialize, Deserialize)]
struct Flaky;

impl Job for Flaky {
    const NAME: &'static str = "flaky";
    type Output = u32;

    async fn perform(&self, context: &Context) -> Result<u32, JobError> {
        match context.attempt() {
            0 => Err("not yet".into()),
            1 => Err(JobError::retry_after(24 * HOUR, "the server said tomorrow")),
            attempt => Ok(attempt),
        }
    }

    fn backoff(attempt: u32) -> Duration {
        HOUR * (attempt + 1)
    }
}

fn store() -> (Client, impl Fn() -> EngineBuilder) {
    let store = MemoryStore::new();
    let client = Client::new(store.clone());
    let builder = move || {
        Engine::builder(store.clone())
            .queue("default")
            .machine::<Order>()
            .machine::<Loops>()
            .job::<Flaky>()
    };
    (client, builder)
}

#[tokio::test]
async fn every_kind_of_delay_is_collapsed() {
    // contract: FSM-2, FSM-3
    let (client, builder) = store();
    let order = Insert::machine(Order { number: 7 }).run_in(HOUR);
    let order = client.insert(order).await.expect("inserted").id();
    let job = client.insert(Insert::job(Flaky)).await.expect("inserted").id();
    let tally = builder().drain().await.expect("drained");
    assert_instance(&client, order).await.is_done_with(&7_u64);
    assert_instance(&client, job)
        .await
        .is_done_with(&2_u32)
        .has_attempt(2);
    assert_eq!(
        (
            tally.steps["order.charge"],
            tally.steps["flaky.perform"],
            tally.steps_run()
        ),
        (3, 3, 7)
    );
    assert_eq!(
        (tally.count("retry"), tally.count("next"), tally.count("done")),
        (4, 1, 2)
    );
}

#[tokio::test]
async fn due_only_leaves_what_waits_for_its_time() {
    let (client, builder) = store();
    let later = Insert::machine(Order { number: 7 }).run_in(HOUR);
    let later = client.insert(later).await.expect("inserted").id();
    let job = client.insert(Insert::job(Flaky)).await.expect("inserted").id();
    let tally = builder().drain().due_only().await.expect("drained");
    assert_eq!((tally.steps_run(), tally.count("retry")), (1, 1));
    assert_instance(&client, later)
        .await
        .is_scheduled()
        .has_attempt(0);
    assert_instance(&client, job)
        .await
        .is_scheduled()
        .has_attempt(1)
        .has_failure("not yet");
    let tally = builder().drain().await.expect("drained");
    assert_eq!(tally.count("done"), 2, "a later drain takes up what was left");
}

#[tokio::test]
async fn exactly_as_many_steps_as_allowed_are_no_runaway() {
    let (client, builder) = store();
    client.insert(Insert::job(Flaky)).await.expect("inserted");
    let tally = builder().drain().max_steps(3).await.expect("drained");
    assert_eq!(tally.steps_run(), 3);
}

#[tokio::test]
async fn a_runaway_is_stopped_and_left_runnable() {
    // contract: FSM-4
    let (client, builder) = store();
    let id = client
        .insert(Insert::machine(Loops))
        .await
        .expect("inserted")
        .id();
    let error = builder().drain().max_steps(50).await.expect_err("a runaway");
    let text = error.to_string();
    assert!(
        text.contains("50 steps ran") && text.contains("loops.charge"),
        "{text}"
    );
    assert_instance(&client, id)
        .await
        .is_due()
        .has_attempt(50)
        .has_failure("always");
}

/// Where [`Held`] finds the store that it runs in.
static STORE: OnceLock<MemoryStore> = OnceLock::new();

/// Its row is held by another transaction from the moment that it runs.
#[derive(Serialize, Deserialize)]
struct Held;

impl Job for Held {
    const NAME: &'static str = "held";
    type Output = ();

    async fn perform(&self, context: &Context) -> Result<(), JobError> {
        STORE.get().expect("set by the test").faults().lock(context.id());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_a_transaction_holds_ends_the_drain_with_its_name() {
    // contract: OUT-6
    let memory = STORE.get_or_init(MemoryStore::new).clone();
    let client = Client::new(memory.clone());
    let id = client.insert(Insert::job(Held)).await.expect("inserted").id();
    let drain = Engine::builder(memory).queue("default").job::<Held>().drain();
    let text = drain.await.expect_err("it is locked").to_string();
    assert!(
        text.contains(&format!("instance {id} (held.perform)")) && text.contains("another transaction"),
        "{text}"
    );
}

/// A tree: a parent that waits for a child, which waits for a signal.
#[derive(Serialize, Deserialize)]
struct Tree {
    depth: u32,
}

impl Machine for Tree {
    const NAME: &'static str = "tree";
    const RUN_AHEAD: bool = true;
    type Step = TreeStep;
    type Result = String;

    fn first_step() -> TreeStep {
        TreeStep::Start
    }

    async fn step(self, step: TreeStep, context: &Context) -> StepResult<Self> {
        match step {
            TreeStep::Start => next(TreeStep::Grow, self).ok(),
            TreeStep::Grow if self.depth == 0 => {
                await_signal("sun", TreeStep::Bloom, self).timeout(HOUR).ok()
            }
            TreeStep::Grow => {
                let child = Insert::machine(Tree {
                    depth: self.depth - 1,
                });
                schedule_children(TreeStep::Bloom, self).child(child).ok()
            }
            TreeStep::Bloom if context.deadline_fired() => done("withered".to_owned()).ok(),
            TreeStep::Bloom if self.depth == 0 => done(context.signal::<String>("sun")?).ok(),
            TreeStep::Bloom => done(context.children()[0].done::<String>()?).ok(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TreeStep {
    Start,
    Grow,
    Bloom,
}

#[tokio::test]
async fn waits_children_and_running_ahead_work_in_a_drain_and_what_is_parked_stays_so() {
    // contract: RUN-1, CHILD-1, CHILD-2, SIG-4
    let store = MemoryStore::new();
    let client = Client::new(store.clone());
    let drain = || {
        Engine::builder(store.clone())
            .queue("default")
            .machine::<Tree>()
            .drain()
    };
    let mut trees = Vec::new();
    for _ in 0..2 {
        let tree = Insert::machine(Tree { depth: 1 });
        trees.push(client.insert(tree).await.expect("inserted").id());
    }
    let tally = drain().await.expect("drained");
    let outcomes = ["ahead", "schedule_children", "await", "done"].map(|name| tally.count(name));
    assert_eq!(outcomes, [4, 2, 2, 0], "no deadline is collapsed");
    let leaves: Vec<_> = (1..=4)
        .map(durable_core::InstanceId::new)
        .filter(|id| !trees.contains(id))
        .collect();
    client.signal(leaves[0], "sun", "blooms").await.expect("sent");
    client.fire_deadline(leaves[1]).await.expect("fired");
    let tally = drain().await.expect("drained");
    assert_eq!(tally.count("done"), 4);
    assert_instance(&client, trees[0])
        .await
        .is_done_with(&"blooms".to_owned());
    assert_instance(&client, trees[1])
        .await
        .is_done_with(&"withered".to_owned());
}

/// Cancels itself while it runs, through the store that the test set.
#[derive(Serialize, Deserialize)]
struct Doomed;

static DOOMED: OnceLock<MemoryStore> = OnceLock::new();

impl Job for Doomed {
    const NAME: &'static str = "doomed";
    type Output = ();

    async fn perform(&self, context: &Context) -> Result<(), JobError> {
        let client = Client::new(DOOMED.get().expect("set by the test").clone());
        client.cancel(context.id(), "by itself").await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_cancellation_that_comes_while_a_step_is_drained_wins() {
    // contract: CANCEL-1
    let store = DOOMED.get_or_init(MemoryStore::new).clone();
    let client = Client::new(store.clone());
    let id = client.insert(Insert::job(Doomed)).await.expect("inserted").id();
    let drain = Engine::builder(store).queue("default").job::<Doomed>().drain();
    let tally = drain.await.expect("drained");
    assert_eq!((tally.count("cancelled"), tally.count("done")), (1, 0));
    assert_instance(&client, id).await.has_failure("by itself");
}
