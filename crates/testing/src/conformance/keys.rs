//! Correlation keys: who holds one, until when, and that it never comes back.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Inserted, NewInstance, Operation, Transition};
use durable_core::{Scope, Status, Store};

use super::scene::{
    HOUR, KEEP_NOTHING, Scene, cancelled, done, entry, failed, ids, keyed, later, next, retry,
};
use super::waiting::{await_signals, cancel, child, fan_out};

/// Whoever comes second is told who holds the key, in the same batch and in a later one.
pub async fn a_taken_key_makes_a_duplicate_also_within_one_batch(store: Arc<dyn Store>) {
    // contract: ID-1, ID-3, INS-3
    let scene = Scene::new(store).await;
    let of = |text| keyed(text, Scope::UNTIL_TERMINAL);
    let first = scene
        .insert(vec![of("b"), entry(), of("a"), of("b"), of("b"), of("a")])
        .await;
    assert!(first[..3].iter().all(|one| !one.is_duplicate()), "{first:?}");
    assert_eq!(first[3], Inserted::Duplicate(first[0].id()));
    assert_eq!(first[4], Inserted::Duplicate(first[0].id()));
    assert_eq!(first[5], Inserted::Duplicate(first[2].id()));
    let second = scene.insert(vec![of("c"), of("a"), of("b"), of("c")]).await;
    assert!(!second[0].is_duplicate());
    assert_eq!(second[1], Inserted::Duplicate(first[2].id()));
    assert_eq!(second[2], Inserted::Duplicate(first[0].id()));
    assert_eq!(second[3], Inserted::Duplicate(second[0].id()));
    assert_eq!(scene.claim(10).await.len(), 4, "a duplicate inserts nothing");
}

/// Another instance may queue up behind one that runs.
pub async fn until_started_frees_the_key_at_the_first_claim(store: Arc<dyn Store>) {
    // contract: ID-2
    let scene = Scene::new(store).await;
    let first = scene.insert_one(keyed("k", Scope::UNTIL_STARTED)).await;
    let again = scene.insert(vec![keyed("k", Scope::UNTIL_STARTED)]).await;
    assert_eq!(again, [Inserted::Duplicate(first)]);
    scene.claim(1).await;
    assert_eq!(scene.find("k").await, None);
    assert_eq!(scene.snapshot(first).await.correlation_key, None);
    scene.insert_one(keyed("k", Scope::UNTIL_STARTED)).await;
}

/// The default scope: the key is held through claims, steps and attempts, and free after any end.
pub async fn until_terminal_frees_the_key_at_every_end_and_not_before(store: Arc<dyn Store>) {
    // contract: ID-2
    let scene = Scene::new(store).await;
    for end in [done(), failed(), cancelled()] {
        let id = scene.insert_one(keyed("k", Scope::UNTIL_TERMINAL)).await;
        for transition in [next(Duration::ZERO), retry(), Transition::GiveBack] {
            let claimed = scene.claim(1).await;
            assert_eq!(scene.find("k").await, Some(id));
            scene.commit(&claimed, transition).await;
            assert_eq!(scene.find("k").await, Some(id));
        }
        let claimed = scene.claim(1).await;
        scene.commit(&claimed, end).await;
        assert_eq!(scene.find("k").await, None);
        assert_eq!(scene.snapshot(id).await.correlation_key, None);
    }
}

/// A key may outlive the work: it is free once retention has removed the instance.
pub async fn until_removed_keeps_the_key_until_the_instance_is_collected(store: Arc<dyn Store>) {
    // contract: ID-2, OPS-3
    let scene = Scene::new(store).await;
    for end in [done(), failed(), cancelled()] {
        let id = scene.insert_one(keyed("k", Scope::UNTIL_REMOVED)).await;
        let claimed = scene.claim(1).await;
        scene.commit(&claimed, end).await;
        let again = scene.insert(vec![keyed("k", Scope::UNTIL_TERMINAL)]).await;
        assert_eq!(again, [Inserted::Duplicate(id)]);
        assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 1);
        assert_eq!(scene.find("k").await, None);
    }
}

/// A scope may name any statuses, as long as runnable is among them.
pub async fn a_scope_of_ones_own_decides_by_status(store: Arc<dyn Store>) {
    // contract: ID-2
    let scene = Scene::new(store).await;
    let until_good = Scope::of(&[Status::Runnable, Status::Executing, Status::Failed]).expect("valid");
    for (end, held) in [(done(), false), (cancelled(), false), (failed(), true)] {
        let id = scene.insert_one(keyed("good", until_good)).await;
        let claimed = scene.claim(1).await;
        scene.commit(&claimed, end).await;
        assert_eq!(scene.find("good").await, held.then_some(id));
    }
    // Left once, by the claim, the scope is left for good: done does not bring the key back.
    let gap = Scope::of(&[Status::Runnable, Status::Done]).expect("valid");
    scene.insert_one(keyed("gap", gap)).await;
    let claimed = scene.claim(1).await;
    scene.commit(&claimed, done()).await;
    assert_eq!(scene.find("gap").await, None);
}

/// An instance that comes back to runnable does not take from another what it gave away.
pub async fn a_key_once_released_is_never_taken_again(store: Arc<dyn Store>) {
    // contract: ID-2, ID-3
    let scene = Scene::new(store).await;
    let of = || NewInstance {
        priority: 1,
        ..keyed("k", Scope::UNTIL_STARTED)
    };
    let first = scene.insert_one(NewInstance { priority: 0, ..of() }).await;
    let claimed = scene.claim(1).await;
    let second = scene.insert_one(of()).await;
    let still_second = async |scene: &Scene, way: &str| {
        assert_eq!(scene.find("k").await, Some(second), "after {way}");
        let again = scene.insert(vec![of()]).await;
        assert_eq!(again, [Inserted::Duplicate(second)], "after {way}");
    };
    let mut claimed = claimed;
    for transition in [retry(), next(Duration::ZERO), Transition::GiveBack] {
        scene.commit(&claimed, transition.clone()).await;
        still_second(&scene, transition.as_str()).await;
        claimed = scene.claim(1).await;
        assert_eq!(ids(&claimed), [first]);
        still_second(&scene, "a claim").await;
    }
    scene.release(vec![claimed[0].fence.claim]).await;
    still_second(&scene, "a release").await;
    let dead = scene.register(HOUR, None).await;
    scene.claim_by(dead, 1).await;
    scene.declare_dead(dead).await;
    assert_eq!(scene.reap_all(10).await.instances, 1);
    still_second(&scene, "the reaper").await;
    let claimed = scene.claim(1).await;
    assert_eq!(ids(&claimed), [first]);
    scene.commit(&claimed, done()).await;
    still_second(&scene, "the end").await;
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 1);
    still_second(&scene, "its removal").await;
}

/// Waiting for a time is a way of being runnable.
pub async fn a_key_is_held_while_its_instance_waits_for_its_time(store: Arc<dyn Store>) {
    // contract: ID-2
    let scene = Scene::new(store).await;
    for scope in [Scope::UNTIL_STARTED, Scope::UNTIL_TERMINAL] {
        let entry = keyed("k", scope);
        let id = scene
            .insert_one(NewInstance {
                correlation: entry.correlation,
                ..later()
            })
            .await;
        assert_eq!(scene.find("k").await, Some(id));
        let request = scene.ask(1);
        let due = scene
            .store
            .make_due(request.queue.clone(), Arc::clone(&request.machines));
        assert_eq!(due.await.expect("made due"), 1);
        assert_eq!(scene.find("k").await, Some(id));
        let claimed = scene.answer(request).await.instances;
        assert_eq!(ids(&claimed), [id]);
        assert_eq!(scene.find("k").await.is_some(), scope != Scope::UNTIL_STARTED);
        scene.commit(&claimed, done()).await;
    }
}

/// A wait outside of the scope frees the key for good; one that goes on at once was never there.
pub async fn waiting_outside_of_the_scope_frees_the_key(store: Arc<dyn Store>) {
    // contract: ID-2
    let scene = Scene::new(store).await;
    let at_work = Scope::of(&[Status::Runnable, Status::Executing]).expect("valid");
    let waits = || [await_signals(&["a"], None), fan_out(vec![child()], None, None)];
    for (scope, held) in [(at_work, false), (Scope::UNTIL_TERMINAL, true)] {
        for wait in waits() {
            let id = scene.insert_one(keyed("k", scope)).await;
            let claimed = scene.claim_one().await;
            scene.committed(&[claimed], wait).await;
            assert_eq!(scene.find("k").await, held.then_some(id));
            scene.operate(vec![id.into()], Operation::Wake).await;
            assert_eq!(scene.find("k").await, held.then_some(id), "back in the scope");
            let claimed = scene.claim_one().await;
            scene.committed(&[claimed], done()).await;
            assert_eq!(scene.find("k").await, None);
        }
    }
    let id = scene.insert_one(keyed("k", at_work)).await;
    for goes_on in [await_signals(&["a"], None), fan_out(Vec::new(), None, None)] {
        scene.send(id, "a").await;
        let claimed = scene.claim_one().await;
        scene.committed(&[claimed], goes_on).await;
        assert_eq!(scene.find("k").await, Some(id));
    }
    // Only one of the two kinds of waits may be in it.
    let for_signals =
        Scope::of(&[Status::Runnable, Status::Executing, Status::AwaitingSignal]).expect("valid");
    for (wait, held) in waits().into_iter().zip([true, false]) {
        let id = scene
            .insert_one(NewInstance {
                priority: -1,
                ..keyed("one", for_signals)
            })
            .await;
        let claimed = scene.claim(1).await;
        scene.committed(&claimed, wait).await;
        assert_eq!(scene.find("one").await, held.then_some(id));
        scene.operate(vec![id.into()], cancel("because")).await;
    }
}

/// A parent's own key is taken while its children are inserted, and free after it has left the scope.
pub async fn a_child_cannot_take_the_key_of_its_parent(store: Arc<dyn Store>) {
    // contract: ID-2, CHILD-1
    let scene = Scene::new(store).await;
    let at_work = Scope::of(&[Status::Runnable, Status::Executing]).expect("valid");
    let parent = scene.insert_one(keyed("k", at_work)).await;
    let claimed = scene.claim_one().await;
    let children = vec![keyed("k", Scope::UNTIL_TERMINAL), child()];
    scene.committed(&[claimed], fan_out(children, None, None)).await;
    assert_eq!(scene.snapshot(parent).await.children_left, 1);
    assert_eq!(scene.find("k").await, None);
}
