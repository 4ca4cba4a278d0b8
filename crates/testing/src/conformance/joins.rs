//! Joins: which ends of children count, and when the parent wakes.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{CommitFate, NewInstance, Transition};
use durable_core::{Status, Store};

use super::scene::{Scene, done, failed, ids, next, outcome, queue, retry};
use super::waiting::{await_signals, child, default_queue, fan_out, seen};

/// Siblings of one commit count together.
pub async fn siblings_that_end_together_wake_their_parent_once(store: Arc<dyn Store>) {
    // contract: CHILD-1, CHILD-3
    let scene = Scene::new(store).await;
    let (first, _) = scene.with_children(vec![child(); 5], None).await;
    let (second, _) = scene.with_children(vec![child(); 3], Some(2)).await;
    let claimed = scene.claim_children(10).await;
    assert_eq!(claimed.len(), 8);
    assert_eq!(scene.committed(&claimed[..2], done()).await.woken, []);
    assert_eq!(scene.snapshot(first).await.children_left, 3);
    assert_eq!(
        scene.committed(&claimed[2..], done()).await.woken,
        default_queue()
    );
    for parent in [first, second] {
        assert_eq!(scene.status(parent).await, Status::Runnable);
    }
    let woken = scene.claim(10).await;
    assert_eq!(ids(&woken), [first, second], "each once");
}

/// A parent may need only some; it sees the others as they stand.
pub async fn enough_children_wake_their_parent(store: Arc<dyn Store>) {
    // contract: CHILD-1, CHILD-2
    let scene = Scene::new(store).await;
    let four = vec![
        child(),
        child(),
        child(),
        NewInstance {
            priority: 1,
            ..child()
        },
    ];
    let (parent, children) = scene.with_children(four, Some(2)).await;
    assert_eq!(scene.snapshot(parent).await.children_left, 2);
    assert_eq!(scene.end_child(done()).await, []);
    let running = scene.claim_children(1).await;
    assert_eq!(scene.end_child(failed()).await, default_queue());
    let claimed = scene.claim_one().await;
    let statuses = [Status::Done, Status::Runnable, Status::Failed, Status::Runnable];
    let all: Vec<_> = children.iter().copied().zip(statuses).collect();
    assert_eq!(
        seen(&claimed.coordination.children),
        all,
        "what executes is not told apart"
    );
    assert_eq!(
        scene.unfinished_children(&[parent]).await,
        [children[1], children[3]]
    );
    assert_eq!(
        scene.committed(&running, done()).await.woken,
        [],
        "nobody waits for it"
    );
    assert_eq!(scene.status(parent).await, Status::Executing);
    scene.committed(&[claimed], retry()).await;
    let claimed = scene.claim_one().await;
    let second = claimed.coordination.children[1].status;
    assert_eq!(
        second,
        Status::Done,
        "a step that is tried again sees them as they stand then"
    );
}

/// More than there are means all; none at all means to go on.
pub async fn the_number_of_needed_children_is_bounded(store: Arc<dyn Store>) {
    // contract: CHILD-1
    let scene = Scene::new(store).await;
    let (all, _) = scene.with_children(vec![child(), child()], Some(7)).await;
    assert_eq!(scene.snapshot(all).await.children_left, 2);
    let (none, children) = scene.with_children(vec![child()], Some(0)).await;
    assert_eq!(scene.status(none).await, Status::Runnable);
    let claimed = scene.claim_one().await;
    assert_eq!(
        seen(&claimed.coordination.children),
        [(children[0], Status::Runnable)]
    );
}

/// A child counts towards its own fan-out only.
pub async fn late_children_of_an_earlier_fan_out_count_for_nothing(store: Arc<dyn Store>) {
    // contract: CHILD-1
    let scene = Scene::new(store).await;
    let (parent, first) = scene
        .with_children(vec![child(), child(), child()], Some(1))
        .await;
    let early = scene.claim_children(10).await;
    assert_eq!(scene.committed(&early[..1], done()).await.woken, default_queue());
    let claimed = scene.claim_one().await;
    // One is late in the very commit of the second fan-out.
    let late_and_new = vec![
        outcome(&early[1], done()),
        outcome(&claimed, fan_out(vec![child()], None, None)),
    ];
    let fates = scene.commit_all(scene.worker, late_and_new, Vec::new()).await;
    assert_eq!(fates, [CommitFate::Committed; 2]);
    assert_eq!(scene.snapshot(parent).await.children_left, 1);
    assert_eq!(scene.committed(&early[2..], done()).await.woken, []);
    let snapshot = scene.snapshot(parent).await;
    assert_eq!(
        (snapshot.status, snapshot.children_left),
        (Status::AwaitingChildren, 1)
    );
    let second = scene.claim_children(10).await;
    assert_eq!(scene.committed(&second, done()).await.woken, default_queue());
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.visit, 2);
    assert!(!first.contains(&second[0].id));
    let only_new = [(second[0].id, Status::Done)];
    assert_eq!(seen(&claimed.coordination.children), only_new);
}

/// What a child does before its end does not count.
pub async fn only_an_end_counts(store: Arc<dyn Store>) {
    // contract: CHILD-1
    let scene = Scene::new(store).await;
    let (parent, children) = scene.with_children(vec![child()], None).await;
    for transition in [retry(), next(Duration::ZERO), Transition::GiveBack] {
        assert_eq!(scene.end_child(transition).await, []);
    }
    assert_eq!(scene.end_child(await_signals(&["a"], None)).await, []);
    assert_eq!(scene.snapshot(parent).await.children_left, 1);
    assert_eq!(scene.unfinished_children(&[parent]).await, children);
    assert_eq!(scene.send(children[0], "a").await, [queue("children")]);
    assert_eq!(scene.end_child(failed()).await, default_queue());
}

/// A child may have children; each end wakes the one above.
pub async fn trees_nest(store: Arc<dyn Store>) {
    // contract: CHILD-3
    let scene = Scene::new(store).await;
    let (root, mut level) = scene.with_children(vec![child()], None).await;
    let mut above = vec![root];
    for _ in 0..4 {
        let claimed = scene.claim_children(10).await;
        assert_eq!(ids(&claimed), level);
        scene
            .committed(&claimed, fan_out(vec![child(), child()], None, None))
            .await;
        above.extend(&level);
        level = scene.unfinished_children(&level).await;
    }
    assert_eq!(level.len(), 16);
    let leaves = scene.claim_children(100).await;
    assert_eq!(scene.committed(&leaves, done()).await.woken, [queue("children")]);
    for width in [8, 4, 2] {
        let woken = scene.claim_children(100).await;
        assert_eq!(woken.len(), width);
        assert!(woken.iter().all(|one| one.coordination.children.len() == 2));
        assert_eq!(scene.committed(&woken, done()).await.woken, [queue("children")]);
    }
    assert_eq!(scene.end_child(done()).await, default_queue());
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.id, root);
    assert_eq!(claimed.coordination.children.len(), 1);
    assert_eq!(scene.unfinished_children(&above).await, []);
}

/// A signal waits in the inbox of a parent until it waits for signals.
pub async fn a_signal_does_not_end_a_wait_for_children(store: Arc<dyn Store>) {
    // contract: SIG-3, CHILD-1
    let scene = Scene::new(store).await;
    let parent = scene.parked(&["a"], None).await;
    scene.send(parent, "a").await;
    let claimed = scene.claim_one().await;
    scene
        .committed(&[claimed], fan_out(vec![child()], None, None))
        .await;
    assert_eq!(scene.send(parent, "a").await, []);
    assert_eq!(scene.status(parent).await, Status::AwaitingChildren);
    scene.end_child(done()).await;
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], await_signals(&["a"], None)).await;
    assert_eq!(scene.status(parent).await, Status::Runnable);
}
