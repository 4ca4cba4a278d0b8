//! A thousand senders to one instance at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use durable_core::{
    Client, Context, Insert, Machine, SendSignal, SignalFate, StepResult, await_signal, done,
};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const SENDERS: usize = 1000;

/// Collects numbers until it has them all.
#[derive(Serialize, Deserialize)]
struct Collector;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CollectorStep {
    Wait,
    Look,
}

impl Machine for Collector {
    const NAME: &'static str = "collector";
    type Step = CollectorStep;
    type Result = Vec<usize>;

    fn first_step() -> CollectorStep {
        CollectorStep::Wait
    }

    async fn step(self, step: CollectorStep, context: &Context) -> StepResult<Self> {
        let numbers: Vec<usize> = context.signals("number")?;
        match step {
            CollectorStep::Look if numbers.len() >= SENDERS => done(numbers).ok(),
            _ => await_signal("number", CollectorStep::Look, self).ok(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_senders_at_once_lose_no_signal_and_repeat_none() {
    // contract: SIG-1, SIG-2, SIG-3, SIG-5
    let database = TestDatabase::new().await.expect("a database");
    // Two nodes, so that senders also meet between processes' pools.
    let nodes = [
        PgStore::connect(&database.url()).await.expect("connected"),
        PgStore::connect(&database.url()).await.expect("connected"),
    ];
    let engine = durable_core::Engine::builder(nodes[0].clone())
        .queue("default")
        .machine::<Collector>()
        .start()
        .await
        .expect("started");
    let inserted = engine.client().insert(Insert::machine(Collector)).await;
    let id = inserted.expect("inserted").id();
    let start = Arc::new(Barrier::new(2 * SENDERS));
    let mut senders = JoinSet::new();
    // Each number is sent twice, by two senders who do not know of each other.
    for sender in 0..2 * SENDERS {
        let (start, client) = (Arc::clone(&start), Client::new(nodes[sender % 2].clone()));
        senders.spawn(async move {
            let number = sender / 2;
            start.wait().await;
            let signal = SendSignal::new(id, "number", &number).deduplication_key(format!("number-{number}"));
            client.send(signal).await.expect("delivered")
        });
    }
    let fates = senders.join_all().await;
    let stored = fates
        .iter()
        .filter(|fate| **fate == SignalFate::Stored(id))
        .count();
    assert_eq!(
        stored, SENDERS,
        "one of each pair is a duplicate, or came after the end"
    );
    let numbers: Vec<usize> = engine
        .client()
        .result(id, std::time::Duration::from_secs(60))
        .await
        .expect("done");
    assert_eq!(numbers.len(), SENDERS);
    let numbers: BTreeSet<usize> = numbers.into_iter().collect();
    assert_eq!(numbers, (0..SENDERS).collect());
    engine.shutdown().await;
}
