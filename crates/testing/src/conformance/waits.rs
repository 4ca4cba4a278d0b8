//! Waits for signals: when they go on, and which signals an outcome removes.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Commit, CommitFate, SignalFate, Transition};
use durable_core::{Fence, Status, Store};

use super::scene::{HOUR, Scene, cancelled, done, failed, next, outcome, retry};
use super::waiting::{await_signals, default_queue, expected, fan_out, names, numbered, signal};

/// The order of a wait and a delivery does not matter: what came before the wait lets it go on at once.
pub async fn a_signal_that_came_before_the_wait_wakes(store: Arc<dyn Store>) {
    // contract: SIG-2, SIG-3
    let scene = Scene::new(store).await;
    // Before the step was claimed, when it saw the signal, but not as awaited; and while it ran.
    for while_it_runs in [false, true] {
        let id = scene.insert_plain(1).await[0];
        if !while_it_runs {
            assert_eq!(scene.send(id, "a").await, []);
        }
        let claimed = scene.claim_one().await;
        if while_it_runs {
            assert_eq!(scene.send(id, "a").await, []);
            assert_eq!(scene.status(id).await, Status::Executing);
        }
        let committed = scene
            .committed(&[claimed], await_signals(&["b", "a"], Some(HOUR)))
            .await;
        assert_eq!(committed.woken, [], "only others are woken");
        let snapshot = scene.snapshot(id).await;
        assert_eq!(
            (snapshot.status, snapshot.due_in),
            (Status::Runnable, Duration::ZERO)
        );
        assert_eq!(
            (snapshot.awaited, snapshot.deadline_in),
            (names(&["b", "a"]), None)
        );
        let claimed = scene.claim_one().await;
        assert_eq!(numbered(&claimed.coordination.inbox), expected(&[(1, "a")]));
        scene.committed(&[claimed], done()).await;
    }
}

/// Waiting again, to collect a pack, waits for something new.
pub async fn what_was_given_as_awaited_does_not_wake_again(store: Arc<dyn Store>) {
    // contract: SIG-3, OUT-4
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], None).await;
    for received in 1..=3 {
        assert_eq!(scene.send(id, "a").await, default_queue());
        let claimed = scene.claim_one().await;
        assert_eq!(claimed.coordination.inbox.len(), received);
        scene.committed(&[claimed], await_signals(&["a"], None)).await;
        assert_eq!(scene.status(id).await, Status::AwaitingSignal);
    }
    assert_eq!(scene.inbox(id).await.len(), 3, "waiting again removes nothing");
    // Also not when the step was tried twice, and waits for a set.
    scene.send(id, "a").await;
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], retry()).await;
    let claimed = scene.claim_one().await;
    scene
        .committed(&[claimed], await_signals(&["b", "a"], None))
        .await;
    assert_eq!(scene.status(id).await, Status::AwaitingSignal);
}

/// New is what came after the claim, and what was in the inbox under a name that was not awaited.
pub async fn what_was_not_given_as_awaited_wakes(store: Arc<dyn Store>) {
    // contract: SIG-3
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], None).await;
    scene.send(id, "b").await;
    scene.send(id, "a").await;
    let claimed = scene.claim_one().await;
    scene
        .committed(&[claimed], await_signals(&["a", "b"], None))
        .await;
    assert_eq!(
        scene.status(id).await,
        Status::Runnable,
        "b was there, and not awaited"
    );
    let claimed = scene.claim_one().await;
    scene.send(id, "a").await;
    scene.committed(&[claimed], await_signals(&["a"], None)).await;
    assert_eq!(
        scene.status(id).await,
        Status::Runnable,
        "another a came while it ran"
    );
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], await_signals(&["b"], None)).await;
    assert_eq!(
        scene.status(id).await,
        Status::Runnable,
        "b was seen before, but was not awaited by this step"
    );
}

/// Other progress removes what the step was given of the awaited names; later ones and others stay.
pub async fn progress_removes_exactly_what_was_given(store: Arc<dyn Store>) {
    // contract: OUT-4
    let scene = Scene::new(store).await;
    for progress in [next(Duration::ZERO), fan_out(Vec::new(), None, None)] {
        let id = scene.parked(&["a", "b"], None).await;
        let all = ["a", "c", "b"].map(|text| signal(id, text));
        scene.deliver(all.to_vec()).await;
        let claimed = scene.claim_one().await;
        scene.send(id, "a").await;
        scene.committed(&[claimed], progress).await;
        assert_eq!(scene.inbox(id).await, expected(&[(2, "c"), (4, "a")]));
        assert_eq!(scene.snapshot(id).await.awaited, []);
        let claimed = scene.claim_one().await;
        assert_eq!(claimed.coordination.received, 4, "numbers go on");
        scene.committed(&[claimed], next(Duration::ZERO)).await;
        assert_eq!(scene.inbox(id).await.len(), 2, "nothing was awaited by this step");
        let claimed = scene.claim_one().await;
        scene.committed(&[claimed], done()).await;
    }
}

/// A step that is tried again sees what it saw, and what came meanwhile.
pub async fn what_comes_back_keeps_its_signals(store: Arc<dyn Store>) {
    // contract: OUT-4
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], None).await;
    scene.send(id, "a").await;
    let unchanged = async |received: u32, way: &str| {
        let snapshot = scene.snapshot(id).await;
        assert_eq!(snapshot.inbox.len(), received as usize, "after {way}");
        assert_eq!(snapshot.awaited, names(&["a"]), "after {way}");
        assert_eq!(
            (snapshot.status, snapshot.visit),
            (Status::Runnable, 1),
            "after {way}"
        );
    };
    let mut received = 1;
    for transition in [retry(), Transition::GiveBack] {
        let claimed = scene.claim_one().await;
        received += 1;
        scene.send(id, "a").await;
        let way = transition.as_str();
        scene.committed(&[claimed], transition).await;
        unchanged(received, way).await;
    }
    let claimed = scene.claim_one().await;
    scene.release(vec![claimed.fence.claim]).await;
    unchanged(received, "a release").await;
    let dead = scene.register(HOUR, None).await;
    scene.claim_by(dead, 1).await;
    scene.declare_dead(dead).await;
    assert_eq!(scene.reap_all(10).await.instances, 1);
    unchanged(received, "the reaper").await;
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.coordination.received, received);
    assert_eq!(claimed.coordination.inbox.len(), received as usize);
}

/// An end empties the inbox, and nothing comes into it any more.
pub async fn an_end_clears_the_inbox(store: Arc<dyn Store>) {
    // contract: OUT-4, SIG-1
    let scene = Scene::new(store).await;
    for end in [done(), failed(), cancelled()] {
        let id = scene.parked(&["a"], None).await;
        scene.send(id, "a").await;
        let claimed = scene.claim_one().await;
        scene.send(id, "a").await;
        scene.committed(&[claimed], end).await;
        let snapshot = scene.snapshot(id).await;
        assert!(snapshot.status.is_terminal());
        assert_eq!((snapshot.inbox, snapshot.awaited), (Vec::new(), Vec::new()));
        let delivered = scene.deliver(vec![signal(id, "a")]).await;
        assert_eq!(delivered.fates, [SignalFate::NoTarget]);
        assert_eq!(scene.inbox(id).await, []);
    }
}

/// What was claimed before the wait proves nothing after it.
pub async fn a_fence_from_before_the_wait_is_stale(store: Arc<dyn Store>) {
    // contract: CLAIM-4, SIG-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let before = scene.claim_one().await;
    scene
        .committed(std::slice::from_ref(&before), await_signals(&["a"], None))
        .await;
    let stale = [CommitFate::Stale];
    assert_eq!(scene.commit(std::slice::from_ref(&before), done()).await, stale);
    scene.send(id, "a").await;
    assert_eq!(scene.commit(std::slice::from_ref(&before), done()).await, stale);
    let claimed = scene.claim_one().await;
    assert!(
        claimed.fence.seq > before.fence.seq + 1,
        "the wake has a number of its own"
    );
    let old_number = Commit {
        fence: Fence {
            seq: before.fence.seq + 1,
            ..claimed.fence
        },
        ..outcome(&claimed, done())
    };
    assert_eq!(
        scene.commit_all(scene.worker, vec![old_number], Vec::new()).await,
        stale
    );
    scene.committed(&[claimed], done()).await;
}
