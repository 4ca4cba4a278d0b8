//! Running ahead: the same worker, no queue, committed step by step, bounded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use durable_core::store::{Beat, Store as _};
use durable_core::{Context, Engine, Insert, InstanceId, Machine, Status, StepResult, done, next};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};

use crate::engine_rules::{builder, client, snapshot, until};

const HOUR: Duration = Duration::from_secs(3600);

/// What ran, in order: whose, how many were left, and the key that the context gave.
static RAN: Mutex<Vec<(String, u32, String)>> = Mutex::new(Vec::new());

fn ran(name: &str) -> Vec<(u32, String)> {
    let ran = RAN.lock().expect("whole");
    ran.iter()
        .filter(|(of, ..)| of == name)
        .map(|(_, left, key)| (*left, key.clone()))
        .collect()
}

/// Counts down, one step each.
#[derive(Serialize, Deserialize)]
struct Countdown {
    name: String,
    left: u32,
    pause: Duration,
    delay: Duration,
    /// Waits here until it is cancelled.
    hold_at: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CountdownStep {
    Count,
}

impl Machine for Countdown {
    const NAME: &'static str = "countdown";
    const RUN_AHEAD: bool = true;
    type Step = CountdownStep;
    type Result = ();

    fn first_step() -> CountdownStep {
        CountdownStep::Count
    }

    async fn step(mut self, step: CountdownStep, context: &Context) -> StepResult<Self> {
        let key = context.attempt_key();
        RAN.lock()
            .expect("whole")
            .push((self.name.clone(), self.left, key));
        if self.hold_at == Some(self.left) {
            context.stopping().cancelled().await;
            assert!(context.cancel_requested());
        }
        tokio::time::sleep(self.pause).await;
        if self.left == 0 {
            return done(()).ok();
        }
        self.left -= 1;
        let delay = self.delay;
        next(step, self).after(delay).ok()
    }
}

fn countdown(name: &str, left: u32) -> Countdown {
    Countdown {
        name: name.to_owned(),
        left,
        pause: Duration::ZERO,
        delay: Duration::ZERO,
        hold_at: None,
    }
}

async fn engine(store: &MemoryStore, steps: u32, time: Duration) -> Engine {
    let builder = builder(store).queue("default").machine::<Countdown>();
    let builder = builder.poll_interval(HOUR).run_ahead_limit(steps, time);
    builder.start().await.expect("started")
}

/// Runs one and says how many claims it took, those that found nothing not counted where they cannot be told apart.
async fn claims_of(store: &MemoryStore, machine: Countdown) -> (InstanceId, u64) {
    let client = client(store);
    // Everything that the start of the engine asks for has been asked.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = store.faults().calls(Call::Claim);
    let id = client
        .insert(Insert::machine(machine))
        .await
        .expect("inserted")
        .id();
    client.result::<()>(id, HOUR).await.expect("done");
    (id, store.faults().calls(Call::Claim) - before)
}

/// The claims that the store holds for a worker.
async fn held(store: &MemoryStore, engine: &Engine) -> usize {
    let beat = store.heart().beat(engine.worker(), HOUR).await.expect("alive");
    match beat {
        Beat::Alive { claims, .. } => claims.len(),
        Beat::Dead => panic!("dead"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_takes_one_claim_commits_each_step_and_leaves_no_claim_behind() {
    // contract: RUN-1, CORE-1
    let store = MemoryStore::new();
    let engine = engine(&store, 50, HOUR).await;
    let commits = store.faults().calls(Call::Commit);
    let (id, claims) = claims_of(&store, countdown("whole", 20)).await;
    let expected: Vec<(u32, String)> = (0..=20)
        .map(|visit| (20 - visit, format!("{id}-count-{visit}-0")))
        .collect();
    assert_eq!(
        ran("whole"),
        expected,
        "each step once, in order, each visit with a key of its own"
    );
    assert_eq!(claims, 1);
    assert_eq!(
        store.faults().calls(Call::Commit) - commits,
        21,
        "each step is committed before the next one runs"
    );
    // The claims that ended are forgotten with the next commit.
    claims_of(&store, countdown("last", 0)).await;
    assert!(
        held(&store, &engine).await <= 1,
        "{}",
        held(&store, &engine).await
    );
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_after_its_number_of_steps_or_its_time() {
    // contract: RUN-4
    let store = MemoryStore::new();
    let by_steps = engine(&store, 2, HOUR).await;
    let (_, claims) = claims_of(&store, countdown("by steps", 8)).await;
    assert_eq!(ran("by steps").len(), 9);
    // Three steps each, and at the end of each run a poke: the queue is looked at once more at most.
    assert!((3..=6).contains(&claims), "{claims} claims for 3 runs");
    by_steps.shutdown().await;

    let by_time = engine(&store, 50, Duration::from_secs(1)).await;
    let slow = Countdown {
        pause: Duration::from_millis(400),
        ..countdown("by time", 8)
    };
    let (_, claims) = claims_of(&store, slow).await;
    assert_eq!(ran("by time").len(), 9);
    assert!((3..=6).contains(&claims), "{claims} claims for 3 runs");
    by_time.shutdown().await;

    let off = engine(&store, 0, HOUR).await;
    let (_, claims) = claims_of(&store, countdown("off", 3)).await;
    assert!(claims >= 4, "{claims}: each step goes through the queue");
    off.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_goes_through_the_queue() {
    // contract: RUN-1
    let store = MemoryStore::new();
    let engine = engine(&store, 50, HOUR).await;
    let delayed = Countdown {
        delay: Duration::from_secs(60),
        ..countdown("delayed", 2)
    };
    let (_, claims) = claims_of(&store, delayed).await;
    assert_eq!(ran("delayed").len(), 3);
    assert!(claims >= 3, "{claims}");
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_or_a_store_that_is_away_runs_no_step_twice() {
    // contract: RUN-1, OUT-3, CLAIM-6
    let store = MemoryStore::new();
    let engine = engine(&store, 50, HOUR).await;
    for _ in 0..4 {
        store.faults().lose_next_answer(Call::Commit);
        store.faults().fail_next(Call::Commit);
    }
    store.faults().fail_next(Call::Resolve);
    let (id, claims) = claims_of(&store, countdown("lost", 6)).await;
    assert_eq!(ran("lost").len(), 7);
    assert!(claims <= 5, "{claims}: one, and a poke for each lost answer");
    let end = snapshot(&client(&store), id).await;
    assert_eq!((end.status, end.crashes, end.visit), (Status::Done, 0, 6));
    // A beat later nothing is listed that nobody knows, and nothing was given back while it ran.
    tokio::time::sleep(HOUR).await;
    claims_of(&store, countdown("last", 0)).await;
    assert!(held(&store, &engine).await <= 1);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_runs_ahead_can_be_cancelled_and_a_shutdown_ends_a_run() {
    // contract: CANCEL-1, RUN-1, OPS-2
    let store = MemoryStore::new();
    let client = client(&store);
    let first = engine(&store, 50, HOUR).await;
    let held = Countdown {
        hold_at: Some(3),
        ..countdown("cancelled", 5)
    };
    let id = client.insert(Insert::machine(held)).await.expect("inserted").id();
    until("it runs ahead", || ran("cancelled").len() == 3).await;
    client.cancel(id, "no more").await.expect("asked");
    client.result::<()>(id, HOUR).await.expect_err("cancelled");
    assert_eq!(ran("cancelled").len(), 3, "no further step ran");
    assert_eq!(snapshot(&client, id).await.status, Status::Cancelled);

    let endless = Countdown {
        pause: Duration::from_secs(1),
        ..countdown("endless", 1000)
    };
    let id = client
        .insert(Insert::machine(endless))
        .await
        .expect("inserted")
        .id();
    until("it runs", || ran("endless").len() == 1).await;
    // Refuses nothing; looks at what is committed from here on.
    let transitions = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&transitions);
    store.faults().refuse_commits(move |commit| {
        seen.lock().expect("whole").push(commit.transition.as_str());
        false
    });
    first.shutdown().await;
    assert_eq!(
        *transitions.lock().expect("whole"),
        ["next"],
        "a worker that stops keeps nothing"
    );
    let left = snapshot(&client, id).await;
    assert_eq!((left.status, left.attempt), (Status::Runnable, 0));
}
