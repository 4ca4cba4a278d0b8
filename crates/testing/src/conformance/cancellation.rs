//! Cancellation: at once, or as soon as the step has ended.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Beat, CommitFate, Expired, NewInstance, OperationFate, Transition};
use durable_core::{Failure, FailureKind, Scope, Status, Store};

use super::scene::{HOUR, KEEP_NOTHING, Scene, alive, done, failed, key, keyed, next, outcome, queue, retry};
use super::waiting::{Statuses, await_signals, cancel, child, default_queue, fan_out};

/// Whatever does not execute ends at once, and cannot run any more.
pub async fn a_cancellation_ends_what_does_not_execute(store: Arc<dyn Store>) {
    // contract: CANCEL-1, CANCEL-2
    let scene = Scene::new(store).await;
    let all = Statuses::of(&scene).await;
    let due = scene.insert_plain(1).await[0];
    let targets = [
        all.postponed,
        due,
        all.awaiting_signal,
        all.awaiting_children,
        all.executing,
        all.done,
        all.failed,
        all.cancelled,
    ];
    scene.send(all.awaiting_signal, "b").await;
    let operated = scene
        .operate(targets.map(Into::into).to_vec(), cancel("because"))
        .await;
    let fates = [
        OperationFate::Applied(all.postponed),
        OperationFate::Applied(due),
        OperationFate::Applied(all.awaiting_signal),
        OperationFate::Applied(all.awaiting_children),
        OperationFate::Requested(all.executing),
        OperationFate::Unchanged(all.done, Status::Done),
        OperationFate::Unchanged(all.failed, Status::Failed),
        OperationFate::Unchanged(all.cancelled, Status::Cancelled),
    ];
    assert_eq!(operated.fates, fates);
    assert_eq!(operated.woken, []);
    for id in &targets[..4] {
        let snapshot = scene.snapshot(*id).await;
        assert_eq!(snapshot.status, Status::Cancelled);
        let why = Failure::new(FailureKind::Cancelled, "because");
        assert_eq!((snapshot.failure, snapshot.result), (Some(why), None));
        assert_eq!((snapshot.inbox, snapshot.awaited), (Vec::new(), Vec::new()));
        assert_eq!((snapshot.deadline_in, snapshot.children_left), (None, 0));
        assert!(!snapshot.cancel_requested && !snapshot.deadline_fired);
    }
    assert_eq!(scene.expire(10).await, Expired::default());
    assert_eq!(scene.end_child(done()).await, [], "its parent waits no more");
    let request = scene.ask(10);
    let moved = scene
        .store
        .make_due(request.queue.clone(), Arc::clone(&request.machines));
    assert_eq!(moved.await.expect("made due"), 0);
    let claimed = scene.answer(request).await;
    assert_eq!((claimed.instances.len(), claimed.next_due), (0, None));
    let again = scene.operate_one(due, cancel("again"), &[]).await;
    assert_eq!(again, OperationFate::Unchanged(due, Status::Cancelled));
    assert_eq!(
        scene.collect_all(KEEP_NOTHING, 10).await,
        8,
        "all but the executing one"
    );
}

/// Attempt and step stay to be looked at; the key is free.
pub async fn a_cancellation_frees_the_key_and_keeps_the_attempt(store: Arc<dyn Store>) {
    // contract: CANCEL-2, ID-2
    let scene = Scene::new(store).await;
    let id = scene.insert_one(keyed("k", Scope::UNTIL_TERMINAL)).await;
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], retry()).await;
    let operated = scene.operate(vec![key("k").into()], cancel("because")).await;
    assert_eq!(operated.fates, [OperationFate::Applied(id)]);
    assert_eq!(scene.find("k").await, None);
    let snapshot = scene.snapshot(id).await;
    assert_eq!((snapshot.attempt, snapshot.step.as_str()), (1, "first"));
    let operated = scene.operate(vec![key("k").into()], cancel("because")).await;
    assert_eq!(operated.fates, [OperationFate::NotFound]);
    let kept = scene.insert_one(keyed("kept", Scope::UNTIL_REMOVED)).await;
    scene.operate(vec![kept.into()], cancel("because")).await;
    assert_eq!(
        scene.find("kept").await,
        Some(kept),
        "its scope has no end but removal"
    );
}

/// A cancelled child has ended as any other.
pub async fn a_cancelled_child_counts(store: Arc<dyn Store>) {
    // contract: CANCEL-2, CHILD-1
    let scene = Scene::new(store).await;
    let (parent, children) = scene.with_children(vec![child(), child(), child()], None).await;
    let fate = scene.operate_one(children[1], cancel("because"), &[]).await;
    assert_eq!(fate, OperationFate::Applied(children[1]));
    assert_eq!(scene.snapshot(parent).await.children_left, 2);
    let both = vec![children[0].into(), children[2].into()];
    assert_eq!(
        scene.operate(both, cancel("because")).await.woken,
        default_queue()
    );
    let claimed = scene.claim_one().await;
    let seen = &claimed.coordination.children;
    assert!(
        seen.iter().all(|child| child.status == Status::Cancelled),
        "{seen:?}"
    );
    // A tree that is cancelled together wakes nobody.
    let (parent, children) = scene.with_children(vec![child()], None).await;
    let both = vec![children[0].into(), parent.into()];
    let operated = scene.operate(both, cancel("because")).await;
    let fates = [children[0], parent].map(OperationFate::Applied);
    assert_eq!((operated.fates, operated.woken), (fates.to_vec(), Vec::new()));
    for id in [parent, children[0]] {
        assert_eq!(scene.status(id).await, Status::Cancelled);
    }
}

/// Whatever a running step returns, its instance ends cancelled, and its worker is told.
pub async fn a_requested_cancellation_is_final(store: Arc<dyn Store>) {
    // contract: CANCEL-1
    let scene = Scene::new(store).await;
    let other = scene.register(HOUR, None).await;
    let inserted = scene.insert_plain(2).await;
    let claimed = scene.claim(2).await;
    let id = inserted[1];
    assert_eq!(
        scene.operate_one(id, cancel("first"), &[]).await,
        OperationFate::Requested(id)
    );
    assert_eq!(
        scene.operate_one(id, cancel("second"), &[]).await,
        OperationFate::Requested(id)
    );
    let before = scene.snapshot(id).await;
    assert!(before.cancel_requested && before.status == Status::Executing);
    let number = claimed[0].fence.claim;
    for (worker, claims) in [(scene.worker, vec![number]), (other, Vec::new())] {
        let told = Beat::Alive {
            claims,
            cancelled: vec![id],
        };
        assert_eq!(scene.beat(worker, HOUR).await, told, "every worker is told");
    }
    for transition in [
        next(Duration::ZERO),
        retry(),
        Transition::GiveBack,
        await_signals(&["a"], None),
        fan_out(vec![child()], None, None),
        done(),
        failed(),
    ] {
        let outcomes = vec![outcome(&claimed[1], transition)];
        let fates = scene.commit_all(scene.worker, outcomes, Vec::new()).await;
        assert_eq!(fates, [CommitFate::CancelRequested]);
    }
    assert_eq!(scene.snapshot(id).await, before, "nothing was changed");
    // Its claim stays open, even if it was to be closed.
    let both = vec![outcome(&claimed[0], done()), outcome(&claimed[1], done())];
    let fates = scene.commit_all(scene.worker, both, vec![number]).await;
    assert_eq!(fates, [CommitFate::Committed, CommitFate::CancelRequested]);
    scene.committed(&claimed[1..], Transition::cancelled()).await;
    let snapshot = scene.snapshot(id).await;
    assert_eq!(
        (snapshot.status, snapshot.cancel_requested),
        (Status::Cancelled, false)
    );
    let why = Failure::new(FailureKind::Cancelled, "first");
    assert_eq!(snapshot.failure, Some(why), "whoever asked first has said why");
    assert_eq!(scene.beat(other, HOUR).await, alive(&[]));
}

/// A request outlives the worker that was told of it.
pub async fn a_requested_cancellation_stays_with_what_comes_back(store: Arc<dyn Store>) {
    // contract: CANCEL-1
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let dead = scene.register(HOUR, None).await;
    scene.claim_by(dead, 1).await;
    scene.operate_one(id, cancel("first"), &[]).await;
    scene.declare_dead(dead).await;
    assert_eq!(scene.reap_all(10).await.instances, 1);
    assert!(scene.snapshot(id).await.cancel_requested);
    let claimed = scene.claim_one().await;
    assert!(claimed.coordination.cancel_requested);
    scene.release(vec![claimed.fence.claim]).await;
    let claimed = scene.claim_one().await;
    assert!(claimed.coordination.cancel_requested);
    scene.release(vec![claimed.fence.claim]).await;
    let told = Beat::Alive {
        claims: Vec::new(),
        cancelled: vec![id],
    };
    assert_eq!(scene.beat(scene.worker, HOUR).await, told);
    let fate = scene.operate_one(id, cancel("second"), &[]).await;
    assert_eq!(fate, OperationFate::Applied(id));
    let why = Failure::new(FailureKind::Cancelled, "first");
    assert_eq!(scene.snapshot(id).await.failure, Some(why));
    assert_eq!(scene.beat(scene.worker, HOUR).await, alive(&[]));
}

/// A requested cancellation frees and counts when it is done, and not before.
pub async fn a_requested_cancellation_counts_once_it_is_done(store: Arc<dyn Store>) {
    // contract: CANCEL-1, CANCEL-2
    let scene = Scene::new(store).await;
    let of = NewInstance {
        queue: queue("children"),
        ..keyed("k", Scope::UNTIL_TERMINAL)
    };
    let (parent, children) = scene.with_children(vec![of], None).await;
    let claimed = scene.claim_children(1).await;
    scene.operate_one(children[0], cancel("because"), &[]).await;
    assert_eq!(scene.find("k").await, Some(children[0]));
    assert_eq!(
        scene.commit(&claimed, done()).await,
        [CommitFate::CancelRequested]
    );
    assert_eq!(scene.snapshot(parent).await.children_left, 1);
    scene.send(children[0], "a").await;
    let committed = scene.committed(&claimed, Transition::cancelled()).await;
    assert_eq!(committed.woken, default_queue());
    assert_eq!(scene.find("k").await, None);
    assert_eq!(scene.inbox(children[0]).await, []);
}
