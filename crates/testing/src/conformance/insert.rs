//! Inserts: what is given is what stands, and each entry has its answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use durable_core::store::{ClaimRequest, Coordination, Eligible, Inserted, NewInstance};
use durable_core::{Scope, Status, Store};

use super::scene::{HOUR, Scene, assert_refused, entry, ids, json, key, keyed, later, machine, queue, value};

/// Each entry of a batch gets its own instance, in the caller's order; an empty batch is nothing.
pub async fn a_batch_of_any_size_is_answered_in_the_callers_order(store: Arc<dyn Store>) {
    // contract: INS-3
    let scene = Scene::new(store).await;
    assert_eq!(scene.insert(Vec::new()).await, []);
    let queues = [queue("first"), queue("second"), queue("third")];
    let numbered = |number: usize| NewInstance {
        queue: queues[number % queues.len()].clone(),
        state: json(&number.to_string()),
        ..entry()
    };
    let inserted = scene.insert((0..500).map(numbered).collect()).await;
    let new: Vec<_> = inserted.iter().map(|one| one.id()).collect();
    assert!(inserted.iter().all(|one| matches!(one, Inserted::New(_))));
    assert_eq!(new.iter().collect::<BTreeSet<_>>().len(), 500, "an id came twice");
    for (number, snapshot) in scene.snapshots(&new).await.into_iter().enumerate() {
        let snapshot = snapshot.expect("the instance is there");
        assert_eq!(value(&snapshot.state), number);
        assert_eq!(snapshot.queue, queues[number % queues.len()]);
    }
}

/// All that an entry says is found again.
pub async fn a_new_instance_stands_as_it_was_given(store: Arc<dyn Store>) {
    // contract: INS-1, CLAIM-5
    let scene = Scene::new(store).await;
    let id = scene
        .insert_one(NewInstance {
            machine: machine("billing", 7),
            queue: queue("slow"),
            step: "charge".to_owned(),
            state: json(r#"{"text": "é\n\\u0000 'x'", "list": [1, null]}"#),
            ..keyed("order-1", Scope::UNTIL_TERMINAL)
        })
        .await;
    let snapshot = scene.snapshot(id).await;
    assert_eq!(snapshot.id, id);
    assert_eq!(snapshot.machine, machine("billing", 7));
    assert_eq!(snapshot.queue, queue("slow"));
    assert_eq!(snapshot.step, "charge");
    let state = serde_json::json!({ "text": "é\n\\u0000 'x'", "list": [1, null] });
    assert_eq!(value(&snapshot.state), state);
    assert_eq!(snapshot.status, Status::Runnable);
    assert_eq!((snapshot.attempt, snapshot.crashes), (0, 0));
    assert_eq!((snapshot.result, snapshot.failure), (None, None));
    assert_eq!(snapshot.correlation_key, Some(key("order-1")));
    assert_eq!(snapshot.due_in, Duration::ZERO);
    assert_eq!(
        (snapshot.visit, snapshot.parent, snapshot.children_left),
        (0, None, 0)
    );
    assert_eq!((snapshot.awaited, snapshot.inbox), (Vec::new(), Vec::new()));
    assert_eq!((snapshot.deadline_in, snapshot.deadline_fired), (None, false));
    assert!(!snapshot.cancel_requested);
    let request = ClaimRequest {
        queue: queue("slow"),
        machines: Arc::new([machine("billing", 7)]),
        ..scene.ask(1)
    };
    let claimed = scene.answer(request).await.instances;
    assert_eq!(claimed[0].visit, 0);
    assert_eq!(
        claimed[0].coordination,
        Coordination::default(),
        "it has to do with none"
    );
}

/// An instance may be claimed at an instant of the caller's clock, which may have passed.
pub async fn an_instant_that_has_passed_means_now_and_a_later_one_waits(store: Arc<dyn Store>) {
    // contract: INS-1, CLAIM-1
    let scene = Scene::new(store).await;
    let at = |instant| NewInstance {
        eligible: Eligible::At(instant),
        ..entry()
    };
    let before = scene.insert_plain(1).await;
    let inserted = scene
        .insert(vec![
            at(SystemTime::UNIX_EPOCH),
            at(SystemTime::now() + HOUR),
            later(),
        ])
        .await;
    let claimed = scene.claim(10).await;
    assert_eq!(
        ids(&claimed),
        [before[0], inserted[0].id()],
        "an instant long ago gives no place before older instances"
    );
    for waiting in &inserted[1..] {
        let snapshot = scene.snapshot(waiting.id()).await;
        assert_eq!(snapshot.status, Status::Runnable);
        assert!(
            snapshot.due_in > HOUR / 2 && snapshot.due_in <= HOUR + HOUR / 2,
            "{snapshot:?}"
        );
    }
}

/// One bad entry refuses the batch: nothing of it exists, and no key is taken.
pub async fn a_refused_value_refuses_the_whole_batch(store: Arc<dyn Store>) {
    // contract: INS-3
    let scene = Scene::new(store).await;
    for text in ["{not json", r#""a\u0000b""#, ""] {
        let bad = NewInstance {
            state: json(text),
            ..entry()
        };
        let batch = vec![keyed("order-1", Scope::UNTIL_TERMINAL), bad];
        assert_refused(&scene.store.insert(batch).await);
    }
    let bad = NewInstance {
        step: "a\0b".to_owned(),
        ..entry()
    };
    assert_refused(&scene.store.insert(vec![entry(), bad]).await);
    assert_eq!(scene.claim(10).await.len(), 0);
    assert_eq!(scene.find("order-1").await, None);
}
