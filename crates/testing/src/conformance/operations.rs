//! Operators: what each operation does in each status, and that it says so.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{CommitFate, Expired, NewInstance, Operated, Operation, OperationFate};
use durable_core::{InstanceId, Scope, Status, Store};

use super::scene::{
    HOUR, KEEP_NOTHING, Scene, cancelled, done, entry, failed, failure, ids, key, keyed, later, next, queue,
    retry, value,
};
use super::waiting::{
    Statuses, await_signals, cancel, child, default_queue, expected, fan_out, once, signal,
};

/// Retry now moves only what waits for its time.
pub async fn retry_now_makes_due_what_waits_for_its_time(store: Arc<dyn Store>) {
    // contract: CANCEL-3
    let scene = Scene::new(store).await;
    let all = Statuses::of(&scene).await;
    let fate = scene
        .operate_one(all.postponed, Operation::RetryNow, &default_queue())
        .await;
    assert_eq!(fate, OperationFate::Applied(all.postponed));
    assert_eq!(scene.snapshot(all.postponed).await.due_in, Duration::ZERO);
    for (id, status) in [
        (all.postponed, Status::Runnable),
        (all.executing, Status::Executing),
        (all.awaiting_signal, Status::AwaitingSignal),
        (all.awaiting_children, Status::AwaitingChildren),
        (all.done, Status::Done),
        (all.failed, Status::Failed),
        (all.cancelled, Status::Cancelled),
    ] {
        let fate = scene.operate_one(id, Operation::RetryNow, &[]).await;
        assert_eq!(fate, OperationFate::Unchanged(id, status));
        assert_eq!(scene.status(id).await, status);
    }
    assert_eq!(scene.claim_one().await.id, all.postponed);
}

/// Wake ends a wait as if what it waits for had come.
pub async fn wake_ends_a_wait(store: Arc<dyn Store>) {
    // contract: CANCEL-3
    let scene = Scene::new(store).await;
    let all = Statuses::of(&scene).await;
    let parked = [all.awaiting_signal, all.awaiting_children];
    let operated = scene
        .operate(parked.map(Into::into).to_vec(), Operation::Wake)
        .await;
    assert_eq!(operated.fates, parked.map(OperationFate::Applied));
    assert_eq!(operated.woken, default_queue());
    for (id, status) in [
        (all.awaiting_signal, Status::Runnable),
        (all.awaiting_children, Status::Runnable),
        (all.postponed, Status::Runnable),
        (all.executing, Status::Executing),
        (all.done, Status::Done),
        (all.failed, Status::Failed),
        (all.cancelled, Status::Cancelled),
    ] {
        let fate = scene.operate_one(id, Operation::Wake, &[]).await;
        assert_eq!(fate, OperationFate::Unchanged(id, status));
    }
    assert_eq!(scene.expire(10).await, Expired::default());
    assert_eq!(scene.end_child(done()).await, [], "nobody waits for it any more");
    let claimed = scene.claim(10).await;
    assert_eq!(ids(&claimed), parked);
    for one in &claimed {
        assert!(!one.coordination.deadline_fired);
        assert_eq!(one.attempt, 0);
    }
    assert_eq!(claimed[1].coordination.children.len(), 1);
}

/// Fire ends a wait that has a deadline, as the deadline would.
pub async fn fire_ends_a_wait_that_has_a_deadline(store: Arc<dyn Store>) {
    // contract: CANCEL-3, SIG-4
    let scene = Scene::new(store).await;
    let all = Statuses::of(&scene).await;
    let fate = scene
        .operate_one(all.awaiting_signal, Operation::FireDeadline, &default_queue())
        .await;
    assert_eq!(fate, OperationFate::Applied(all.awaiting_signal));
    for (id, status) in [
        (all.awaiting_signal, Status::Runnable),
        (all.awaiting_children, Status::AwaitingChildren),
        (all.postponed, Status::Runnable),
        (all.executing, Status::Executing),
        (all.failed, Status::Failed),
    ] {
        let fate = scene.operate_one(id, Operation::FireDeadline, &[]).await;
        assert_eq!(fate, OperationFate::Unchanged(id, status));
    }
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.id, all.awaiting_signal);
    assert!(claimed.coordination.deadline_fired);
    scene
        .committed(&[claimed], fan_out(vec![child()], None, Some(HOUR)))
        .await;
    let fate = scene
        .operate_one(all.awaiting_signal, Operation::FireDeadline, &default_queue())
        .await;
    assert_eq!(fate, OperationFate::Applied(all.awaiting_signal));
    let claimed = scene.claim_one().await;
    assert!(claimed.coordination.deadline_fired && claimed.coordination.children.len() == 1);
    assert_eq!(scene.expire(10).await, Expired::default());
}

/// A failed or cancelled instance runs again from its last step; nothing else does.
pub async fn restart_runs_the_last_step_again(store: Arc<dyn Store>) {
    // contract: CANCEL-3
    let scene = Scene::new(store).await;
    let all = Statuses::of(&scene).await;
    for (id, status) in [
        (all.postponed, Status::Runnable),
        (all.executing, Status::Executing),
        (all.awaiting_signal, Status::AwaitingSignal),
        (all.awaiting_children, Status::AwaitingChildren),
        (all.done, Status::Done),
    ] {
        let fate = scene.operate_one(id, Operation::Restart, &[]).await;
        assert_eq!(fate, OperationFate::Unchanged(id, status));
    }
    for id in [all.failed, all.cancelled] {
        let fate = scene.operate_one(id, Operation::Restart, &default_queue()).await;
        assert_eq!(fate, OperationFate::Applied(id));
        assert_eq!(scene.status(id).await, Status::Runnable);
    }
    assert_eq!(ids(&scene.claim(10).await), [all.failed, all.cancelled]);
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], next(Duration::ZERO)).await;
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], retry()).await;
    let dead = scene.register(HOUR, None).await;
    scene.claim_by(dead, 1).await;
    scene.declare_dead(dead).await;
    scene.reap_all(10).await;
    let before = scene.claim_one().await;
    assert_eq!((before.attempt, before.crashes), (2, 1));
    scene.committed(std::slice::from_ref(&before), failed()).await;
    scene.operate_one(id, Operation::Restart, &default_queue()).await;
    let snapshot = scene.snapshot(id).await;
    assert_eq!((snapshot.attempt, snapshot.crashes, snapshot.visit), (0, 0, 1));
    assert_eq!(
        (snapshot.step.as_str(), value(&snapshot.state)),
        ("second", 1.into())
    );
    assert_eq!(
        (snapshot.failure, snapshot.due_in),
        (Some(failure("failed")), Duration::ZERO)
    );
    assert_eq!(
        scene.commit(std::slice::from_ref(&before), done()).await,
        [CommitFate::Stale]
    );
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 1, "only what is done");
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], done()).await;
    assert_eq!(scene.snapshot(id).await.failure, None);
}

/// A restart takes the key again, whatever the scope was, unless somebody has it.
pub async fn restart_takes_the_key_again(store: Arc<dyn Store>) {
    // contract: CANCEL-3, ID-2
    let scene = Scene::new(store).await;
    for scope in [Scope::UNTIL_STARTED, Scope::UNTIL_TERMINAL, Scope::UNTIL_REMOVED] {
        let id = scene.insert_one(keyed("k", scope)).await;
        let claimed = scene.claim_one().await;
        scene.committed(&[claimed], failed()).await;
        let fate = scene.operate_one(id, Operation::Restart, &default_queue()).await;
        assert_eq!(fate, OperationFate::Applied(id));
        assert_eq!(scene.find("k").await, Some(id));
        let claimed = scene.claim_one().await;
        assert_eq!(scene.find("k").await.is_some(), scope != Scope::UNTIL_STARTED);
        scene.committed(&[claimed], cancelled()).await;
        if scope == Scope::UNTIL_REMOVED {
            continue;
        }
        let holder = scene
            .insert_one(NewInstance {
                correlation: keyed("k", Scope::UNTIL_TERMINAL).correlation,
                ..later()
            })
            .await;
        let before = scene.snapshot(id).await;
        let fate = scene.operate_one(id, Operation::Restart, &[]).await;
        assert_eq!(fate, OperationFate::Duplicate(holder));
        assert_eq!(scene.snapshot(id).await, before, "nothing was changed");
        scene.operate(vec![holder.into()], cancel("because")).await;
        let fate = scene.operate_one(id, Operation::Restart, &default_queue()).await;
        assert_eq!(fate, OperationFate::Applied(id));
        scene.operate(vec![id.into()], cancel("because")).await;
    }
}

/// A child that is restarted does not count a second time, nor does its parent wait for it again.
pub async fn a_restarted_child_counts_once(store: Arc<dyn Store>) {
    // contract: CANCEL-3, CHILD-1
    let scene = Scene::new(store).await;
    let (parent, children) = scene.with_children(vec![child(), child(), child()], None).await;
    let claimed = scene.claim_children(1).await;
    scene.committed(&claimed, failed()).await;
    scene.operate_one(children[1], cancel("because"), &[]).await;
    assert_eq!(scene.snapshot(parent).await.children_left, 1);
    for id in [children[0], children[1]] {
        scene
            .operate_one(id, Operation::Restart, &[queue("children")])
            .await;
        assert_eq!(scene.snapshot(id).await.parent, Some(parent));
    }
    assert_eq!(scene.unfinished_children(&[parent]).await, children);
    scene.operate_one(children[1], cancel("again"), &[]).await;
    let mut claimed = scene.claim_children(10).await;
    claimed.sort_by_key(|one| one.id);
    assert_eq!(ids(&claimed), [children[0], children[2]]);
    assert_eq!(scene.committed(&claimed[..1], done()).await.woken, []);
    let snapshot = scene.snapshot(parent).await;
    assert_eq!(
        (snapshot.status, snapshot.children_left),
        (Status::AwaitingChildren, 1)
    );
    assert_eq!(
        scene.committed(&claimed[1..], done()).await.woken,
        default_queue()
    );
}

/// After a restart the inbox is a new one, whose numbers go on.
pub async fn a_restarted_instance_receives_again(store: Arc<dyn Store>) {
    // contract: CANCEL-3, SIG-1
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], None).await;
    let first = once(id, "b", "1");
    scene.deliver(vec![first.clone()]).await;
    scene.operate_one(id, cancel("because"), &[]).await;
    scene.operate_one(id, Operation::Restart, &default_queue()).await;
    let snapshot = scene.snapshot(id).await;
    assert_eq!((snapshot.inbox, snapshot.awaited), (Vec::new(), Vec::new()));
    scene.deliver(vec![first, signal(id, "a")]).await;
    assert_eq!(scene.inbox(id).await, expected(&[(2, "b"), (3, "a")]));
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.coordination.received, 3);
    scene.committed(&[claimed], await_signals(&["a"], None)).await;
    assert_eq!(
        scene.status(id).await,
        Status::Runnable,
        "nothing of it was given as awaited"
    );
}

/// Answers stand in the caller's order; one instance has one answer, however it is named.
pub async fn a_target_that_is_named_twice_is_taken_once(store: Arc<dyn Store>) {
    // contract: CANCEL-3
    let scene = Scene::new(store).await;
    let keyed = NewInstance {
        correlation: keyed("k", Scope::UNTIL_TERMINAL).correlation,
        ..later()
    };
    let id = scene.insert_one(keyed).await;
    let other = scene.insert_one(entry()).await;
    let never = InstanceId::new(other.get() + 1000);
    let targets = vec![
        key("free").into(),
        id.into(),
        other.into(),
        key("k").into(),
        never.into(),
        id.into(),
    ];
    let operated = scene.operate(targets.clone(), Operation::RetryNow).await;
    let fates = [
        OperationFate::NotFound,
        OperationFate::Applied(id),
        OperationFate::Unchanged(other, Status::Runnable),
        OperationFate::Applied(id),
        OperationFate::NotFound,
        OperationFate::Applied(id),
    ];
    assert_eq!(operated.fates, fates);
    assert_eq!(operated.woken, default_queue());
    let operated = scene.operate(targets, cancel("because")).await;
    assert_eq!(operated.fates[1], OperationFate::Applied(id));
    assert_eq!(
        operated.fates[3],
        OperationFate::Applied(id),
        "the key was held when it was asked"
    );
    let nothing = scene.operate(Vec::new(), Operation::Wake).await;
    assert_eq!(nothing, Operated::default());
}
