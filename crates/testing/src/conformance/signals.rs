//! Signals: what is stored, what wakes, and what an outcome removes.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{ClaimRequest, Delivered, NewInstance, NewSignal, SignalFate};
use durable_core::{InstanceId, Scope, Status, Store};

use super::scene::{Scene, assert_refused, done, entry, json, key, keyed, later, next, queue, value};
use super::waiting::{await_signals, default_queue, expected, names, numbered, once, signal};

/// A wait ends with a signal of its name, and with no other; the step sees the whole inbox.
pub async fn a_signal_of_an_awaited_name_wakes(store: Arc<dyn Store>) {
    // contract: SIG-1, SIG-2, CLAIM-5
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], None).await;
    let parked = scene.snapshot(id).await;
    assert_eq!((parked.step.as_str(), value(&parked.state)), ("woken", 2.into()));
    assert_eq!((parked.visit, parked.awaited), (1, names(&["a"])));
    assert_eq!(parked.deadline_in, None);
    assert!(scene.claim(10).await.is_empty(), "who waits is not claimed");
    assert_eq!(scene.send(id, "b").await, []);
    assert_eq!(scene.status(id).await, Status::AwaitingSignal);
    let payload = NewSignal {
        payload: json(r#"{"of":"a"}"#),
        ..signal(id, "a")
    };
    let delivered = scene.deliver(vec![payload]).await;
    assert_eq!(delivered.fates, [SignalFate::Stored(id)]);
    assert_eq!(delivered.woken, default_queue());
    let woken = scene.snapshot(id).await;
    assert_eq!((woken.status, woken.due_in), (Status::Runnable, Duration::ZERO));
    assert_eq!(woken.awaited, names(&["a"]));
    let claimed = scene.claim_one().await;
    assert_eq!(
        (claimed.step.as_str(), claimed.attempt, claimed.visit),
        ("woken", 0, 1)
    );
    let seen = claimed.coordination;
    assert_eq!((seen.received, seen.awaited), (2, names(&["a"])));
    assert_eq!(numbered(&seen.inbox), expected(&[(1, "b"), (2, "a")]));
    assert_eq!(value(&seen.inbox[1].payload), serde_json::json!({"of": "a"}));
    assert!(!seen.deadline_fired && !seen.cancel_requested && seen.children.is_empty());
}

/// Of a set of names each wakes, and a second signal finds nobody to wake.
pub async fn any_name_of_a_set_wakes(store: Arc<dyn Store>) {
    // contract: SIG-3
    let scene = Scene::new(store).await;
    for text in ["a", "b", "c"] {
        let id = scene.parked(&["a", "b", "c"], None).await;
        assert_eq!(scene.send(id, text).await, default_queue());
        assert_eq!(scene.send(id, text).await, []);
        let claimed = scene.claim_one().await;
        assert_eq!(claimed.coordination.received, 2);
        scene.committed(&[claimed], done()).await;
    }
}

/// The second signal of a deduplication key does nothing, as long as the instance lives.
pub async fn a_deduplication_key_makes_a_second_delivery_do_nothing(store: Arc<dyn Store>) {
    // contract: SIG-1
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], None).await;
    let other = scene.insert_one(later()).await;
    let both = vec![
        once(id, "a", "1"),
        once(id, "a", "1"),
        once(other, "a", "1"),
        once(id, "b", "2"),
    ];
    let delivered = scene.deliver(both).await;
    let fates = [
        SignalFate::Stored(id),
        SignalFate::Duplicate(id),
        SignalFate::Stored(other),
        SignalFate::Stored(id),
    ];
    assert_eq!(delivered.fates, fates);
    assert_eq!(scene.inbox(id).await, expected(&[(1, "a"), (2, "b")]));
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], next(Duration::ZERO)).await;
    assert_eq!(
        scene.inbox(id).await,
        expected(&[(2, "b")]),
        "the first is consumed"
    );
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], await_signals(&["a"], None)).await;
    let delivered = scene.deliver(vec![once(id, "a", "1")]).await;
    assert_eq!(delivered.fates, [SignalFate::Duplicate(id)]);
    assert_eq!(delivered.woken, [], "a duplicate wakes nobody");
    assert_eq!(scene.status(id).await, Status::AwaitingSignal);
    let delivered = scene.deliver(vec![once(id, "a", "3")]).await;
    assert_eq!(delivered.fates, [SignalFate::Stored(id)]);
    assert_eq!(scene.inbox(id).await, expected(&[(2, "b"), (3, "a")]));
}

/// Nothing is stored for who is missing, terminal, or found by no key.
pub async fn a_signal_without_a_target_is_not_stored(store: Arc<dyn Store>) {
    // contract: SIG-1
    let scene = Scene::new(store).await;
    let removed = scene.insert_one(keyed("kept", Scope::UNTIL_REMOVED)).await;
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], done()).await;
    let alive = scene.insert_plain(1).await[0];
    let never = InstanceId::new(alive.get() + 1000);
    let signals = vec![
        signal(never, "a"),
        signal(removed, "a"),
        signal(key("kept"), "a"),
        signal(alive, "a"),
        once(key("free"), "a", "1"),
    ];
    let delivered = scene.deliver(signals).await;
    let mut fates = [SignalFate::NoTarget; 5];
    fates[3] = SignalFate::Stored(alive);
    assert_eq!(delivered.fates, fates);
    assert_eq!(scene.inbox(removed).await, []);
    assert_eq!(scene.inbox(alive).await, expected(&[(1, "a")]));
}

/// Who holds the key receives the signal, and nobody after it was released.
pub async fn a_signal_may_name_a_correlation_key(store: Arc<dyn Store>) {
    // contract: SIG-1, ID-1
    let scene = Scene::new(store).await;
    let id = scene.insert_one(keyed("k", Scope::UNTIL_TERMINAL)).await;
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], await_signals(&["a"], None)).await;
    let delivered = scene
        .deliver(vec![once(key("k"), "a", "1"), once(id, "a", "1")])
        .await;
    assert_eq!(
        delivered.fates,
        [SignalFate::Stored(id), SignalFate::Duplicate(id)]
    );
    assert_eq!(delivered.woken, default_queue());
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], done()).await;
    let delivered = scene.deliver(vec![signal(key("k"), "a")]).await;
    assert_eq!(delivered.fates, [SignalFate::NoTarget]);
    let second = scene.insert_one(keyed("k", Scope::UNTIL_TERMINAL)).await;
    let delivered = scene.deliver(vec![signal(key("k"), "a")]).await;
    assert_eq!(delivered.fates, [SignalFate::Stored(second)]);
}

/// Each inbox keeps the order of the call, and each queue is named once.
pub async fn signals_of_one_call_keep_the_callers_order(store: Arc<dyn Store>) {
    // contract: SIG-1
    let scene = Scene::new(store).await;
    let other_queue = NewInstance {
        queue: queue("another"),
        ..entry()
    };
    let mut ids = Vec::new();
    for entry in [entry(), other_queue, entry()] {
        let request = ClaimRequest {
            queue: entry.queue.clone(),
            ..scene.ask(1)
        };
        ids.push(scene.insert_one(entry).await);
        let claimed = scene.answer(request).await.instances;
        scene.committed(&claimed, await_signals(&["x"], None)).await;
    }
    let texts = ["c", "x", "a", "b", "x"];
    let signals: Vec<NewSignal> = texts
        .iter()
        .flat_map(|text| ids.iter().rev().map(|id| signal(*id, text)))
        .collect();
    let delivered = scene.deliver(signals).await;
    assert_eq!(delivered.fates.len(), 15);
    for (at, fate) in delivered.fates.iter().enumerate() {
        assert_eq!(*fate, SignalFate::Stored(ids[2 - at % 3]));
    }
    assert_eq!(delivered.woken, [queue("another"), queue("default")]);
    for id in ids {
        let in_order: Vec<(u32, &str)> = (1..).zip(texts).collect();
        assert_eq!(scene.inbox(id).await, expected(&in_order));
    }
    let nothing = scene.deliver(Vec::new()).await;
    assert_eq!(nothing, Delivered::default());
}

/// One payload that cannot be stored, and nothing of the call is done.
pub async fn a_refused_payload_leaves_the_delivery_undone(store: Arc<dyn Store>) {
    // contract: OUT-2, SIG-1
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], None).await;
    for payload in ["{", r#""a\u0000b""#] {
        let bad = NewSignal {
            payload: json(payload),
            ..signal(id, "a")
        };
        let answer = scene.store.deliver(vec![once(id, "a", "1"), bad]).await;
        assert_refused(&answer);
    }
    let snapshot = scene.snapshot(id).await;
    assert_eq!(
        (snapshot.status, snapshot.inbox.len()),
        (Status::AwaitingSignal, 0)
    );
    let delivered = scene.deliver(vec![once(id, "a", "1")]).await;
    assert_eq!(delivered.fates, [SignalFate::Stored(id)]);
}

/// A signal does not move what waits for its time or runs, and costs it no claim.
pub async fn a_signal_only_waits_in_the_inbox_of_who_does_not_wait(store: Arc<dyn Store>) {
    // contract: SIG-1, CLAIM-3
    let scene = Scene::new(store).await;
    let postponed = scene.insert_one(later()).await;
    assert_eq!(scene.send(postponed, "a").await, []);
    let snapshot = scene.snapshot(postponed).await;
    assert!(snapshot.status == Status::Runnable && snapshot.due_in > Duration::ZERO);
    let running = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    assert_eq!(scene.send(running, "a").await, []);
    assert_eq!(scene.status(running).await, Status::Executing);
    scene.committed(&[claimed], done()).await;
    assert_eq!(scene.status(running).await, Status::Done);
}
