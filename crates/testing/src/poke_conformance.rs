//! The conformance suite of the transports of pokes: what each must do, case by case (rules POKE-1 to POKE-5).
//!
//! A transport runs all of it with one type and one line:
//!
//! ```text
//! use durable_testing::poke_conformance::Subject;
//!
//! struct Memory(MemoryPokes);
//!
//! impl Subject for Memory {
//!     async fn fresh() -> Self { Memory(MemoryPokes::new()) }
//!     fn poking(&self) -> Poking { self.0.node().into() }
//!     async fn cut(&mut self) { self.0.cut(); }
//!     async fn restore(&mut self) { self.0.restore(); }
//!     async fn inject(&self, bytes: &[u8]) { self.0.inject(bytes); }
//! }
//!
//! durable_testing::poke_conformance_tests!(Memory);
//! ```
//!
//! The processes of a case share a store in memory, and nothing else but the transport. They poll once an hour, so that
//! whatever ends was poked; no case measures time.

#![expect(clippy::expect_used, reason = "a panic is how a case fails")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use durable_core::{
    Client, Context, Engine, Insert, InstanceId, Machine, PokeHealth, Poking, Settled, StepResult, Store,
    await_signal, done, schedule_children,
};
use serde::{Deserialize, Serialize};

use crate::memory::{Call, MemoryStore};

const HOUR: Duration = Duration::from_secs(3600);
/// Long before any poll.
const WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// A transport under test, and whatever server it needs.
pub trait Subject: Sized {
    /// Makes it. Panics when it cannot.
    fn fresh() -> impl Future<Output = Self>;

    /// Whether it reaches no further than its own process, which then plays all of them.
    const ONE_PROCESS: bool = false;

    /// The transport for one more process.
    fn poking(&self) -> Poking;

    /// Makes what it needs go away, so that all connections are lost, and none can be made.
    fn cut(&mut self) -> impl Future<Output = ()>;

    /// Brings it back.
    fn restore(&mut self) -> impl Future<Output = ()>;

    /// Sends bytes to all processes, as somebody would who has nothing to do with the engine.
    fn inject(&self, bytes: &[u8]) -> impl Future<Output = ()>;
}

/// What the machines of the cases do.
#[derive(Serialize, Deserialize)]
enum Errand {
    /// Ends at once.
    Quick,
    /// Runs until it is told to stop.
    Long,
    /// Waits for a signal, then for children in the other queue.
    Split,
}

#[derive(Serialize, Deserialize)]
enum ErrandStep {
    Begin,
    Divide,
    End,
}

impl Machine for Errand {
    const NAME: &'static str = "errand";
    const QUEUE: &'static str = "errands";
    type Step = ErrandStep;
    type Result = usize;

    fn first_step() -> ErrandStep {
        ErrandStep::Begin
    }

    async fn step(self, step: ErrandStep, context: &Context) -> StepResult<Self> {
        match (step, &self) {
            (ErrandStep::Begin, Self::Long) => {
                context.stopping().cancelled().await;
                done(0).ok()
            }
            (ErrandStep::Begin, Self::Split) => await_signal("go", ErrandStep::Divide, self).ok(),
            (ErrandStep::Divide, _) => {
                let errands = (0..5).map(|_| Insert::machine(Self::Quick).queue("others"));
                schedule_children(ErrandStep::End, self).children(errands).ok()
            }
            _ => done(context.children().len()).ok(),
        }
    }
}

/// Processes of one case.
struct Scene<S> {
    subject: S,
    store: MemoryStore,
    processes: usize,
}

impl<S: Subject> Scene<S> {
    async fn new() -> Self {
        Self {
            subject: S::fresh().await,
            store: MemoryStore::new(),
            processes: 0,
        }
    }

    /// The store as one more process has it.
    fn process(&mut self) -> Arc<dyn Store> {
        self.processes += 1;
        if S::ONE_PROCESS {
            Arc::new(self.store.clone())
        } else {
            Arc::new(self.store.in_another_process())
        }
    }

    async fn engine(&mut self, queue: &'static str) -> Engine {
        let poking = self.subject.poking();
        let engine = Engine::builder(self.process())
            .name(queue)
            .queue(queue)
            .machine::<Errand>()
            .poll_interval(HOUR)
            .lease(HOUR)
            .heartbeat_thread(false)
            .poke(poking)
            .start();
        let engine = engine.await.expect("started");
        self.meets(engine.client()).await;
        self.quiet().await;
        engine
    }

    /// Waits until nobody claims: what is inserted from then on is not found by a poll, or by the look of a connection.
    async fn quiet(&self) {
        loop {
            let before = self.claims();
            tokio::time::sleep(Duration::from_millis(50)).await;
            if before == self.claims() {
                return;
            }
        }
    }

    async fn web(&mut self) -> Client {
        let poking = self.subject.poking();
        let client = Client::new(self.process()).poking(poking);
        self.meets(&client).await;
        client
    }

    /// A client that tells nobody.
    fn mute(&self) -> Client {
        Client::new(Arc::new(self.store.in_another_process()) as Arc<dyn Store>)
    }

    async fn meets(&self, client: &Client) {
        let others = self.processes - 1;
        until(client, |health| {
            health.connected && health.peers.is_none_or(|peers| peers >= others)
        })
        .await;
    }

    fn claims(&self) -> u64 {
        self.store.faults().calls(Call::Claim)
    }
}

fn health(client: &Client) -> Option<PokeHealth> {
    client.poke_health().into_iter().next()
}

/// Waits until it is so; without a connection it always is.
async fn until(client: &Client, what: impl Fn(&PokeHealth) -> bool) {
    let so = async {
        while !health(client).as_ref().is_none_or(&what) {
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    };
    let so = tokio::time::timeout(WITHIN, so).await;
    so.unwrap_or_else(|_| panic!("never so: {:?}", health(client)));
}

async fn insert(client: &Client, insert: Insert<usize>) -> InstanceId {
    client.insert(insert).await.expect("inserted").id()
}

async fn ends(client: &Client, id: InstanceId) -> usize {
    let result = client.result::<usize>(id, WITHIN).await;
    result.expect("done, long before the poll")
}

/// An insert, a signal, children in the queue of another process, and the join: no hop waits for a poll.
pub async fn work_crosses_queues_and_processes<S: Subject>() {
    // contract: POKE-1, POKE-2
    let mut scene = Scene::<S>::new().await;
    let errands = scene.engine("errands").await;
    let others = scene.engine("others").await;
    scene.meets(errands.client()).await;
    let web = scene.web().await;
    for client in [errands.client(), others.client()] {
        scene.meets(client).await;
    }
    for _ in 0..10 {
        let id = insert(&web, Insert::machine(Errand::Split)).await;
        let parked = web.settled::<usize>(id, WITHIN).await.expect("read");
        assert_eq!(parked, Settled::Parked);
        web.signal(id, "go", &()).await.expect("sent");
        assert_eq!(ends(&web, id).await, 5);
    }
    errands.shutdown().await;
    others.shutdown().await;
}

/// Work that another process inserts for later starts at its time.
pub async fn times_are_told<S: Subject>() {
    // contract: POKE-4
    let mut scene = Scene::<S>::new().await;
    let errands = scene.engine("errands").await;
    let web = scene.web().await;
    for delay in [400, 200, 50] {
        let later = Insert::machine(Errand::Quick).run_in(Duration::from_millis(delay));
        let id = insert(&web, later).await;
        ends(&web, id).await;
    }
    errands.shutdown().await;
}

/// A step in another process learns at once that it is to stop.
pub async fn cancellations_are_told<S: Subject>() {
    // contract: CANCEL-1, POKE-1
    let mut scene = Scene::<S>::new().await;
    let errands = scene.engine("errands").await;
    let web = scene.web().await;
    let id = insert(&web, Insert::machine(Errand::Long)).await;
    tokio::time::timeout(WITHIN, async {
        while web.snapshot(id).await.expect("read").expect("there").status != durable_core::Status::Executing
        {
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    })
    .await
    .expect("it starts, long before the poll");
    web.cancel(id, "not needed").await.expect("asked");
    let settled = web.settled::<usize>(id, WITHIN).await.expect("read");
    assert!(matches!(settled, Settled::Cancelled(_)), "{settled:?}");
    errands.shutdown().await;
}

/// Without the transport a process hears of its own work; when it is back, all look once.
pub async fn a_transport_that_comes_back_is_followed_by_a_look<S: Subject>() {
    // contract: POKE-2, POKE-5
    let mut scene = Scene::<S>::new().await;
    let errands = scene.engine("errands").await;
    let mute = scene.mute();
    for round in 1..=2 {
        scene.subject.cut().await;
        until(errands.client(), |health| !health.connected).await;
        let own = insert(errands.client(), Insert::machine(Errand::Quick)).await;
        ends(errands.client(), own).await;
        scene.quiet().await;
        let unheard = insert(&mute, Insert::machine(Errand::Quick)).await;
        scene.subject.restore().await;
        until(errands.client(), |health| {
            health.connected && health.connections > round && health.last_error.is_some()
        })
        .await;
        if health(errands.client()).is_none() {
            // Nothing was cut, and nobody is told of it but by the next poke.
            insert(errands.client(), Insert::machine(Errand::Quick)).await;
        }
        ends(&mute, unheard).await;
    }
    let web = scene.web().await;
    let id = insert(&web, Insert::machine(Errand::Quick)).await;
    ends(&web, id).await;
    errands.shutdown().await;
}

/// Many inserts one by one: few messages, few claims.
pub async fn a_storm_of_inserts_causes_few_messages_and_few_claims<S: Subject>() {
    // contract: POKE-3
    let mut scene = Scene::<S>::new().await;
    let errands = scene.engine("errands").await;
    let web = scene.web().await;
    let started = tokio::time::Instant::now();
    let (sent, claims) = (health(&web).map_or(0, |health| health.sent), scene.claims());
    let mut last = None;
    for _ in 0..5_000 {
        last = Some(insert(&web, Insert::machine(Errand::Quick)).await);
    }
    ends(&web, last.expect("some")).await;
    let milliseconds = u64::try_from(started.elapsed().as_millis()).expect("short");
    let sent = health(&web).map_or(0, |health| health.sent) - sent;
    let claims = scene.claims() - claims;
    assert!(
        sent <= 10 + milliseconds / 5,
        "{sent} messages in {milliseconds} ms"
    );
    // What a poke finds may be more than one claim takes.
    assert!(
        claims <= 50 + milliseconds / 2 + 5_000 / 50,
        "{claims} claims in {milliseconds} ms"
    );
    errands.shutdown().await;
}

/// A process that hears its own message does nothing.
pub async fn the_own_echo_causes_no_claim<S: Subject>() {
    // contract: POKE-2
    let mut scene = Scene::<S>::new().await;
    let errands = scene.engine("errands").await;
    let claims = scene.claims();
    let id = insert(errands.client(), Insert::machine(Errand::Quick)).await;
    ends(errands.client(), id).await;
    scene.quiet().await;
    assert_eq!(scene.claims() - claims, 1, "the local leg alone");
    let received = health(errands.client()).map_or(0, |health| health.received);
    assert_eq!(received, 0);
    errands.shutdown().await;
}

/// Whatever somebody else sends there is dropped, counted, and changes nothing.
pub async fn foreign_bytes_do_no_harm<S: Subject>() {
    // contract: POKE-6
    let mut scene = Scene::<S>::new().await;
    let errands = scene.engine("errands").await;
    let claims = scene.claims();
    for bytes in [
        b"x".as_slice(),
        b"{\"from\":1,\"pokes\":[\"nothing\"]}",
        &[b'['; 7_000],
    ] {
        scene.subject.inject(bytes).await;
    }
    until(errands.client(), |health| {
        health.dropped.values().sum::<u64>() == 3
    })
    .await;
    scene.quiet().await;
    assert_eq!(scene.claims(), claims);
    let web = scene.web().await;
    let id = insert(&web, Insert::machine(Errand::Quick)).await;
    ends(&web, id).await;
    until(errands.client(), |health| {
        (health.connections, health.received) == (1, 1)
    })
    .await;
    errands.shutdown().await;
}

/// Makes a test of each case of the suite, for a type that implements [`Subject`](crate::poke_conformance::Subject) and is
/// in scope where this stands. The crate needs `tokio` with its macros.
#[macro_export]
macro_rules! poke_conformance_tests {
    ($subject:ident) => {
        $crate::poke_conformance_tests! { @tests $subject
            work_crosses_queues_and_processes
            times_are_told
            cancellations_are_told
            a_transport_that_comes_back_is_followed_by_a_look
            a_storm_of_inserts_causes_few_messages_and_few_claims
            the_own_echo_causes_no_claim
            foreign_bytes_do_no_harm
        }
    };
    (@tests $subject:ident $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::poke_conformance::$case::<$subject>().await;
            }
        )*
    };
}
