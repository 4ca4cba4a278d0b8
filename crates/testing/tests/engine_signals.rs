//! Waiting for signals: what wakes, what the step is given, what is deleted, and when deadlines fire.

use std::time::Duration;

use durable_core::{
    Context, Insert, Machine, SendSignal, Settled, SignalError, SignalFate, StepResult, Target,
    await_signals, done, next, retry,
};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine_rules::{builder, client, snapshot};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Collects signals until it has as many as it wants, or the deadline fires; remembers what each step saw.
#[derive(Serialize, Deserialize, Default)]
struct Basket {
    wanted: usize,
    timeout: Option<Duration>,
    seen: Vec<Vec<u32>>,
    attempts: Vec<u32>,
    fired: bool,
}

#[derive(Serialize, Deserialize)]
enum BasketStep {
    Open,
    Collect,
    Close,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Collected {
    seen: Vec<Vec<u32>>,
    attempts: Vec<u32>,
    fired: bool,
    left: Vec<String>,
}

impl Basket {
    fn wait(self) -> StepResult<Self> {
        let timeout = self.timeout;
        let wait = await_signals(["item", "stop"], BasketStep::Collect, self);
        match timeout {
            Some(timeout) => wait.timeout(timeout).ok(),
            None => wait.ok(),
        }
    }
}

impl Machine for Basket {
    const NAME: &'static str = "basket";
    type Step = BasketStep;
    type Result = Collected;

    fn first_step() -> BasketStep {
        BasketStep::Open
    }

    async fn step(mut self, step: BasketStep, context: &Context) -> StepResult<Self> {
        match step {
            BasketStep::Open => self.wait(),
            BasketStep::Collect => {
                let items = context.signals::<u32>("item")?;
                assert_eq!(
                    context.awaited_signals().count(),
                    items.len(),
                    "what it did not wait for is not given as awaited"
                );
                self.attempts.push(context.attempt());
                self.fired = context.deadline_fired();
                let first = self.seen.is_empty();
                let enough = items.len() >= self.wanted;
                self.seen.push(items);
                if self.fired || enough {
                    next(BasketStep::Close, self).ok()
                } else if first {
                    retry(self).ok()
                } else {
                    self.wait()
                }
            }
            BasketStep::Close => {
                let left = context.inbox().iter().map(|signal| signal.name.to_string());
                done(Collected {
                    left: left.collect(),
                    seen: self.seen,
                    attempts: self.attempts,
                    fired: self.fired,
                })
                .ok()
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_wakes_no_more_and_what_was_awaited_goes_with_the_progress() {
    // contract: SIG-3, OUT-4, SIG-1, FSM-3
    let store = MemoryStore::new();
    let client = client(&store);
    let basket = Basket {
        wanted: 3,
        ..Basket::default()
    };
    let insert = Insert::machine(basket).correlation_key("basket-1");
    let id = client.insert(insert).await.expect("inserted").id();
    let started = Instant::now();
    let early = client.signal(id, "item", &1).await.expect("sent");
    assert_eq!(early, SignalFate::Stored(id), "before the first wait");
    let engine = builder(&store)
        .queue("default")
        .machine::<Basket>()
        .start()
        .await
        .expect("started");
    let parked = client.settled::<Collected>(id, HOUR).await.expect("settled");
    assert_eq!(parked, Settled::Parked, "the early one woke it once, and no more");
    client.signal(id, "other", &"stays").await.expect("sent");
    let by_key = Target::key("basket-1").expect("valid");
    let second = || SendSignal::new(by_key.clone(), "item", &2).deduplication_key("two");
    assert_eq!(client.send(second()).await.expect("sent"), SignalFate::Stored(id));
    assert_eq!(
        client.send(second()).await.expect("sent"),
        SignalFate::Duplicate(id)
    );
    let parked = client.settled::<Collected>(id, HOUR).await.expect("settled");
    assert_eq!(parked, Settled::Parked);
    client.signal(id, "item", &3).await.expect("sent");
    let collected: Collected = client.result(id, HOUR).await.expect("done");
    assert_eq!(
        collected,
        Collected {
            seen: vec![vec![1], vec![1], vec![1, 2], vec![1, 2, 3]],
            attempts: vec![0, 1, 0, 0],
            fired: false,
            left: vec!["other".to_owned()],
        },
        "a retry and waiting again delete none, progress deletes what was awaited"
    );
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "each was found through a poke, and none by a poll"
    );
    let gone = client.signal(id, "item", &4).await.expect("answered");
    assert_eq!(gone, SignalFate::NoTarget);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_fires_on_time_in_a_process_that_serves_the_queue_and_costs_little() {
    // contract: SIG-4
    let store = MemoryStore::new();
    let client = client(&store);
    let engine = builder(&store)
        .queue("default")
        .machine::<Basket>()
        .reaper(false)
        .start()
        .await
        .expect("started");
    let insert = |timeout| {
        Insert::machine(Basket {
            wanted: 1,
            timeout: Some(timeout),
            ..Basket::default()
        })
    };
    let later = client.insert(insert(HOUR)).await.expect("inserted").id();
    client.settled::<Collected>(later, HOUR).await.expect("parked");
    let before = store.faults().calls(Call::Expire);
    let started = Instant::now();
    let sooner = client.insert(insert(MINUTE)).await.expect("inserted").id();
    let collected: Collected = client.result(sooner, HOUR).await.expect("done");
    let late = started.elapsed() - MINUTE;
    assert!(late <= Duration::from_millis(50), "{late:?} late");
    assert_eq!(
        (collected.fired, collected.attempts, collected.seen),
        (true, vec![0], vec![vec![]]),
        "a wake, and no failure"
    );
    let looks = store.faults().calls(Call::Expire) - before;
    assert!(looks <= 60 / 5 + 3, "{looks} looks in a minute");
    // Sooner than the process would look by itself.
    for _ in 0..5 {
        let started = Instant::now();
        let short = Duration::from_millis(700);
        let id = client.insert(insert(short)).await.expect("inserted").id();
        client.result::<Collected>(id, HOUR).await.expect("done");
        let late = started.elapsed() - short;
        assert!(late <= Duration::from_millis(50), "{late:?} late");
    }
    let waits = snapshot(&client, later).await;
    assert!(waits.deadline_in.is_some() && !waits.deadline_fired);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn deadlines_outlive_a_store_that_is_away() {
    // contract: SIG-4
    let store = MemoryStore::new();
    let client = client(&store);
    for _ in 0..3 {
        store.faults().fail_next(Call::Expire);
    }
    let engine = builder(&store)
        .queue("default")
        .machine::<Basket>()
        .start()
        .await
        .expect("started");
    let basket = Basket {
        wanted: 1,
        timeout: Some(Duration::from_millis(100)),
        ..Basket::default()
    };
    let id = client
        .insert(Insert::machine(basket))
        .await
        .expect("inserted")
        .id();
    let collected: Collected = client.result(id, HOUR).await.expect("done");
    assert!(collected.fired);
    engine.shutdown().await;
}

/// Reads signals that are not there or do not fit, and says what it was told.
#[derive(Serialize, Deserialize)]
struct Reader;

impl Machine for Reader {
    const NAME: &'static str = "reader";
    type Step = BasketStep;
    type Result = Vec<String>;

    fn first_step() -> BasketStep {
        BasketStep::Open
    }

    async fn step(self, step: BasketStep, context: &Context) -> StepResult<Self> {
        if matches!(step, BasketStep::Open) {
            return durable_core::await_signal("paid", BasketStep::Collect, self)
                .timeout(HOUR)
                .ok();
        }
        let missing = context.signal::<u32>("shipped").expect_err("not there");
        let unfit = context.signal::<bool>("paid").expect_err("no boolean");
        assert!(matches!(missing, SignalError::NotThere { .. }));
        assert!(matches!(unfit, SignalError::Payload { number: 1, .. }));
        let paid = context.signal::<u32>("paid")?;
        done(vec![missing.to_string(), unfit.to_string(), paid.to_string()]).ok()
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_cannot_be_read_says_what_is_there() {
    // contract: FSM-6
    let store = MemoryStore::new();
    let client = client(&store);
    let id = client
        .insert(Insert::machine(Reader))
        .await
        .expect("inserted")
        .id();
    let signals = [SendSignal::new(id, "paid", &5), SendSignal::new(id, "noted", "x")];
    let fates = client.signal_all(signals).await.expect("sent");
    assert_eq!(fates, [SignalFate::Stored(id); 2]);
    let builder = builder(&store).queue("default").machine::<Reader>();
    builder.drain().await.expect("drained");
    let said: Vec<String> = client.result(id, HOUR).await.expect("done");
    assert!(
        said[0].contains("\"shipped\"") && said[0].contains("\"noted\", \"paid\""),
        "{said:?}"
    );
    assert!(said[1].contains("boolean"), "{said:?}");
    assert_eq!(said[2], "5");
}

#[tokio::test(start_paused = true)]
async fn a_signal_out_of_range_is_refused_by_name_before_anything_is_written() {
    // contract: SIG-1
    let store = MemoryStore::new();
    let client = client(&store);
    let basket = Insert::machine(Basket::default());
    let id = client.insert(basket).await.expect("inserted").id();
    let nul = client.signal(id, "item", "a\0b").await.expect_err("refused");
    assert!(
        nul.to_string().contains("\"item\"") && nul.to_string().contains("U+0000"),
        "{nul}"
    );
    let unnamed = client.signal(id, "", &1).await.expect_err("refused");
    assert!(unnamed.to_string().contains("signal name is empty"), "{unnamed}");
    let keyed = SendSignal::new(id, "item", &1).deduplication_key("");
    let keyed = client.send(keyed).await.expect_err("refused");
    assert!(keyed.to_string().contains("deduplication key"), "{keyed}");
    assert_eq!(store.faults().calls(Call::Deliver), 0);
}
