//! Pokes between processes, over a transport in memory, under paused time. The polls are a minute apart or more: what
//! starts sooner was poked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use durable_core::{
    Client, Context, Engine, Insert, InstanceId, Job, JobError, Machine, Poking, Settled, StepResult,
    await_signal, done, retry, schedule_children,
};
use durable_testing::MemoryPokes;
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine_rules::{builder, client, until};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Less than any poll, and more than the pace of pokes.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(50);

thread_local! {
    /// Which instances the steps of a test have started in; all of a test runs on its thread.
    static STARTED: RefCell<Vec<InstanceId>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn starts(id: InstanceId) -> usize {
    STARTED.with_borrow(|all| all.iter().filter(|started| **started == id).count())
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Errand {
    Quick,
    /// Tries again once, so much later.
    Again(Duration),
    /// Runs until it is told to stop.
    Long,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ErrandStep {
    Only,
}

impl Machine for Errand {
    const NAME: &'static str = "errand";
    const QUEUE: &'static str = "errands";
    type Step = ErrandStep;
    type Result = ();

    fn first_step() -> ErrandStep {
        ErrandStep::Only
    }

    async fn step(self, _step: ErrandStep, context: &Context) -> StepResult<Self> {
        STARTED.with_borrow_mut(|all| all.push(context.id()));
        match self {
            Self::Again(delay) if context.attempt() == 0 => retry(self).after(delay).ok(),
            Self::Long => {
                context.stopping().cancelled().await;
                done(()).ok()
            }
            _ => done(()).ok(),
        }
    }
}

/// Waits for a signal, then for children in another queue.
#[derive(Serialize, Deserialize)]
struct Report;

#[derive(Serialize, Deserialize)]
enum ReportStep {
    Ask,
    Split,
    Join,
}

impl Machine for Report {
    const NAME: &'static str = "report";
    const QUEUE: &'static str = "reports";
    type Step = ReportStep;
    type Result = usize;

    fn first_step() -> ReportStep {
        ReportStep::Ask
    }

    async fn step(self, step: ReportStep, context: &Context) -> StepResult<Self> {
        match step {
            ReportStep::Ask => await_signal("go", ReportStep::Split, self).ok(),
            ReportStep::Split => {
                let errands = (0..10).map(|_| Insert::machine(Errand::Quick));
                schedule_children(ReportStep::Join, self).children(errands).ok()
            }
            ReportStep::Join => done(context.children().len()).ok(),
        }
    }
}

/// An engine in a process of its own.
pub(crate) async fn process(store: &MemoryStore, queue: &'static str, poking: impl Into<Poking>) -> Engine {
    let engine = builder(&store.in_another_process())
        .queue(queue)
        .machine::<Errand>()
        .machine::<Report>()
        .poll_interval(10 * MINUTE)
        .lease(12 * HOUR)
        .poke(poking)
        .start()
        .await
        .expect("started");
    until("it is connected", || {
        engine
            .client()
            .poke_health()
            .iter()
            .all(|health| health.connected)
    })
    .await;
    tokio::time::sleep(SECOND).await;
    engine
}

/// A process without an engine.
pub(crate) async fn web(store: &MemoryStore, pokes: &MemoryPokes) -> Client {
    let client = client(&store.in_another_process()).poking(pokes.node());
    until("it is connected", || client.poke_health()[0].connected).await;
    client
}

#[tokio::test(start_paused = true)]
async fn work_that_crosses_queues_and_processes_waits_for_no_poll() {
    // contract: POKE-1, OPS-1
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let _reports = process(&store, "reports", pokes.node()).await;
    let _errands = process(&store, "errands", pokes.node()).await;
    let web = web(&store, &pokes).await;
    for _ in 0..20 {
        let started = Instant::now();
        let id = web.insert(Insert::machine(Report)).await.expect("inserted").id();
        assert_eq!(
            web.settled::<usize>(id, MINUTE).await.expect("settled"),
            Settled::Parked
        );
        web.signal(id, "go", &()).await.expect("sent");
        assert_eq!(web.result::<usize>(id, MINUTE).await.expect("done"), 10);
        // The web process looks once in 25 ms.
        assert!(started.elapsed() < 4 * AT_ONCE, "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn who_hears_nothing_finds_the_work_at_the_next_poll() {
    // contract: POKE-1
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let _deaf = process(&store, "errands", Poking::None).await;
    let client = web(&store, &pokes).await;
    let started = Instant::now();
    let id = client
        .insert(Insert::machine(Errand::Quick))
        .await
        .expect("inserted")
        .id();
    client.result::<()>(id, HOUR).await.expect("done");
    assert!(started.elapsed() > MINUTE && started.elapsed() <= 50 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_inserts_causes_few_messages_and_few_claims() {
    // contract: POKE-3
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let _errands = process(&store, "errands", pokes.node()).await;
    let web = web(&store, &pokes).await;
    let (sent, claims) = (pokes.sent(), store.faults().calls(Call::Claim));
    let mut last = None;
    for _ in 0..1_000 {
        for _ in 0..10 {
            last = Some(
                web.insert(Insert::machine(Errand::Quick))
                    .await
                    .expect("inserted")
                    .id(),
            );
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    web.result::<()>(last.expect("some"), MINUTE).await.expect("done");
    let sent = pokes.sent() - sent;
    let claims = store.faults().calls(Call::Claim) - claims;
    assert!((1..=220).contains(&sent), "{sent} messages in a second");
    assert!(claims <= 260, "{claims} claims for 10,000 inserts in a second");
}

#[tokio::test(start_paused = true)]
async fn the_own_echo_causes_no_claim_and_nothing_else_does_harm() {
    // contract: POKE-3
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let errands = process(&store, "errands", pokes.node()).await;
    let (client, claims) = (errands.client(), || store.faults().calls(Call::Claim));
    let before = claims();
    let id = client
        .insert(Insert::machine(Errand::Quick))
        .await
        .expect("inserted")
        .id();
    client.result::<()>(id, MINUTE).await.expect("done");
    tokio::time::sleep(SECOND).await;
    assert_eq!(pokes.sent(), 1);
    assert_eq!(claims() - before, 1, "the local leg alone");
    for bytes in [b"".as_slice(), b"\xff\x00", &[b'['; 100_000]] {
        pokes.inject(bytes);
    }
    tokio::time::sleep(SECOND).await;
    let health = &client.poke_health()[0];
    assert_eq!((health.received, health.connections), (0, 1));
    assert_eq!(health.dropped, BTreeMap::from([("malformed", 3)]));
    assert_eq!(claims() - before, 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_another_process_set_is_over_on_time() {
    // contract: POKE-4
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let first = process(&store, "errands", pokes.node()).await;
    let _second = process(&store, "errands", pokes.node()).await;
    let web = web(&store, &pokes).await;
    let claims = store.faults().calls(Call::Claim);
    let started = Instant::now();
    for seconds in (10..100).rev() {
        let insert = Insert::machine(Errand::Quick).run_in(SECOND * seconds);
        web.insert(insert).await.expect("inserted");
    }
    let id = web
        .insert(Insert::machine(Errand::Quick).run_in(SECOND * 5))
        .await;
    web.result::<()>(id.expect("inserted").id(), HOUR)
        .await
        .expect("done");
    assert!(started.elapsed() >= SECOND * 5 && started.elapsed() < SECOND * 5 + AT_ONCE);
    let claims = store.faults().calls(Call::Claim) - claims;
    assert!(claims <= 4, "{claims} claims: they sleep until the next time");
    // One that sets a retry and goes away leaves it to the other.
    let again = Insert::machine(Errand::Again(SECOND * 300));
    let id = web.insert(again).await.expect("inserted").id();
    until("it ran once", || starts(id) == 1).await;
    let started = Instant::now();
    tokio::time::sleep(SECOND).await;
    first.shutdown().await;
    web.result::<()>(id, HOUR).await.expect("done");
    assert!(started.elapsed() >= SECOND * 300 && started.elapsed() < SECOND * 300 + AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_step_in_another_process_is_told_of_its_cancellation_at_once() {
    // contract: CANCEL-1, POKE-1
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let _errands = process(&store, "errands", pokes.node()).await;
    let web = web(&store, &pokes).await;
    let id = web
        .insert(Insert::machine(Errand::Long))
        .await
        .expect("inserted")
        .id();
    until_started(id).await;
    let asked = Instant::now();
    web.cancel(id, "not needed").await.expect("asked");
    let settled = web.settled::<()>(id, HOUR).await.expect("settled");
    assert!(matches!(settled, Settled::Cancelled(_)), "{settled:?}");
    assert!(
        asked.elapsed() < 2 * AT_ONCE,
        "the beat comes every three hours: {:?}",
        asked.elapsed()
    );
}

pub(crate) async fn until_started(id: InstanceId) {
    while starts(id) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[derive(Serialize, Deserialize)]
struct Unused;

impl Job for Unused {
    const NAME: &'static str = "unused";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_polls_once_per_interval_and_does_no_more() {
    // contract: POKE-4
    let store = MemoryStore::new();
    let engine = builder(&store).queue("idle").job::<Unused>().start().await;
    let engine = engine.expect("started");
    tokio::time::sleep(MINUTE).await;
    let claims = store.faults().calls(Call::Claim);
    tokio::time::sleep(50 * SECOND).await;
    assert_eq!(
        store.faults().calls(Call::Claim) - claims,
        10,
        "one per 5 s, by default"
    );
    engine.shutdown().await;
}
