//! How many statements the engine's actions take, counted by the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use durable_core::store::{Commit, NewSignal, SignalFate, Target, Transition};
use durable_core::{Engine, Insert, InstanceId, Json, Queue, SignalName, Store};

use crate::counted::{Counted, again, done};
use crate::store::Noop;

const LEASE: Duration = Duration::from_secs(3600);

/// How the claim statement begins, behind its comment.
const CLAIM: &str = "quota AS MATERIALIZED";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_any_size_is_one_statement() {
    // contract: CLAIM-5, OUT-1, INS-3
    let counted = Counted::new().await;
    counted.reset().await;
    counted.insert(10_000, "").await;
    assert_eq!(
        counted.statements().await,
        1,
        "an insert: {:?}",
        counted.counts().await
    );

    counted.reset().await;
    let claimed = counted.claim(1, 500).await;
    assert_eq!(claimed.len(), 500);
    assert_eq!(
        counted.statements().await,
        1,
        "a claim: {:?}",
        counted.counts().await
    );

    counted.reset().await;
    counted.commit(&claimed, &done(), &[1]).await;
    assert_eq!(
        counted.statements().await,
        1,
        "a commit: {:?}",
        counted.counts().await
    );

    counted.reset().await;
    let claimed = counted.claim(2, 500).await;
    counted.commit(&claimed, &again(), &[2]).await;
    assert_eq!(counted.statements().await, 2, "{:?}", counted.counts().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_park_a_batch_and_to_deliver_to_it_is_one_statement_each() {
    // contract: SIG-2, OUT-1
    let counted = Counted::new().await;
    let approval = || SignalName::new("approval").expect("valid");
    for (number, count) in [(1, 1), (2, 500)] {
        let ids = counted.insert(count, "").await;
        let claimed = counted.claim(number, count).await;
        counted.reset().await;
        let park = Transition::Await {
            step: "perform".to_owned(),
            state: Json::encode(&()).expect("valid"),
            signals: vec![approval()],
            timeout: Some(LEASE),
        };
        counted.commit(&claimed, &park, &[number]).await;
        assert_eq!(
            counted.statements().await,
            1,
            "parking {count}: {:?}",
            counted.counts().await
        );
        let signal = |id: &InstanceId| NewSignal {
            target: Target::Id(*id),
            name: approval(),
            payload: Json::encode(&()).expect("valid"),
            deduplication_key: None,
        };
        counted.reset().await;
        let delivered = counted.store.deliver(ids.iter().map(signal).collect()).await;
        assert!(
            ids.iter()
                .copied()
                .map(SignalFate::Stored)
                .eq(delivered.expect("delivered").fates),
            "each has its own"
        );
        assert_eq!(
            counted.statements().await,
            1,
            "delivering {count}: {:?}",
            counted.counts().await
        );
        let woken = counted.claim(number + 10, count).await;
        assert_eq!(woken.len(), count, "the delivery woke all");
        counted.commit(&woken, &done(), &[number + 10]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_spawn_and_to_join_a_batch_takes_the_same_few_statements_whatever_its_size() {
    // contract: CHILD-1, CHILD-3, OUT-1
    let counted = Counted::new().await;
    for (number, parents, each) in [(1, 1, 1), (2, 50, 10)] {
        counted.insert(parents, "").await;
        let claimed = counted.claim(number, parents).await;
        let child = Insert::job(Noop { text: String::new() });
        let spawn = Transition::ScheduleChildren {
            step: "perform".to_owned(),
            state: Json::encode(&()).expect("valid"),
            children: vec![child.encode().expect("valid"); each],
            needed: None,
            timeout: None,
        };
        counted.reset().await;
        counted.commit(&claimed, &spawn, &[number]).await;
        assert_eq!(
            counted.statements().await,
            5,
            "a transaction of outcomes, children, and those without any: {:?}",
            counted.counts().await
        );
        let children = counted.claim_instances(number + 10, parents * each).await;
        assert_eq!(children.len(), parents * each);
        let ends = children.iter().map(|child| Commit::of(child, done())).collect();
        counted.reset().await;
        counted.commit_all(ends, &[number + 10]).await;
        assert_eq!(
            counted.statements().await,
            1,
            "joining: {:?}",
            counted.counts().await
        );
        let joined = counted.claim(number + 20, parents).await;
        assert_eq!(joined.len(), parents, "each was woken");
        counted.commit(&joined, &done(), &[number + 20]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_finds_due_rows_moves_them_with_one_more_statement_and_looks_again() {
    // contract: CLAIM-5
    let counted = Counted::new().await;
    let ids = counted.insert(500, "").await;
    let claimed = counted.claim(1, 500).await;
    let later = Transition::Retry {
        state: None,
        delay: Duration::from_micros(1),
        failure: None,
    };
    counted.commit(&claimed, &later, &[1]).await;
    counted.reset().await;
    assert_eq!(counted.claim(2, 500).await.len(), ids.len());
    assert_eq!(counted.statements().await, 3, "{:?}", counted.counts().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_is_one_statement_that_writes_the_same_whatever_is_held() {
    // contract: LEASE-1
    const BEATS: i64 = 20;
    let counted = Counted::new().await;
    let mut heart = counted.store.heart();
    let mut written = Vec::new();
    for held in [0, 500, 5000] {
        if held > 0 {
            counted.insert(held, "").await;
            assert_eq!(
                counted
                    .claim(i64::try_from(held).expect("small"), held)
                    .await
                    .len(),
                held
            );
        }
        counted.reset().await;
        for _ in 0..BEATS {
            heart.beat(counted.worker, LEASE).await.expect("beaten");
        }
        assert_eq!(counted.statements().await, BEATS, "{:?}", counted.counts().await);
        written.push(counted.log_bytes().await);
    }
    let (least, most) = (written.iter().min(), written.iter().max());
    let (least, most) = (least.expect("three"), most.expect("three"));
    assert!(
        *least > 0 && *most < least * 2 && *most < BEATS * 1000,
        "{written:?} bytes for {BEATS} beats with nothing, 500 and 5500 rows held"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_engine_claims_at_most_once_per_poll_interval_and_queue() {
    // contract: CLAIM-5
    const POLL: Duration = Duration::from_millis(20);
    let counted = Counted::new().await;
    let store: Arc<dyn Store> = counted.store.clone().into();
    counted.reset().await;
    let started = Instant::now();
    let engine = Engine::builder(store)
        .queue(Queue::new("default"))
        .queue(Queue::new("other"))
        .job::<Noop>()
        .poll_interval(POLL)
        .start()
        .await
        .expect("started");
    let claims = loop {
        let claims = counted.calls(CLAIM).await;
        if claims >= 20 {
            break claims;
        }
    };
    // Measured after the claims were counted: a slow machine only makes it longer.
    let intervals = started.elapsed().as_millis() / POLL.as_millis();
    let most = 2 * (1 + i64::try_from(intervals).expect("few"));
    assert!(
        claims <= most,
        "{claims} claims of two queues within {intervals} intervals"
    );
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn between_polls_an_engine_claims_only_when_it_is_poked_or_has_room_again() {
    // contract: CLAIM-5
    const ROUNDS: i64 = 10;
    let counted = Counted::new().await;
    let store: Arc<dyn Store> = counted.store.clone().into();
    counted.reset().await;
    let engine = Engine::builder(store)
        .queue("default")
        .job::<Noop>()
        .poll_interval(LEASE)
        .start()
        .await
        .expect("started");
    let client = engine.client();
    for _ in 0..ROUNDS {
        let new = client.insert(Insert::job(Noop { text: String::new() })).await;
        let id = new.expect("inserted").id();
        client.result::<()>(id, LEASE).await.expect("done");
    }
    let claims = counted.calls(CLAIM).await;
    engine.shutdown().await;
    assert!(
        (ROUNDS..=1 + ROUNDS).contains(&claims),
        "{claims} claims for one start and {ROUNDS} pokes"
    );
}
