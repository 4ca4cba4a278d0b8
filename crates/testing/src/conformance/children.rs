//! Children: how they are inserted, counted and seen.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{CommitFate, NewInstance};
use durable_core::{InstanceId, Scope, Status, Store};

use super::scene::{
    KEEP_NOTHING, Scene, assert_refused, cancelled, done, failed, failure, ids, json, keyed, later, machine,
    next, outcome, queue, value,
};
use super::waiting::{child, default_queue, fan_out, seen};

fn keyed_child(text: &'static str) -> NewInstance {
    NewInstance {
        queue: queue("children"),
        ..keyed(text, Scope::UNTIL_TERMINAL)
    }
}

/// The parent wakes once, with the last of its children, however they end, and sees each of them.
pub async fn a_parent_waits_for_all_of_its_children(store: Arc<dyn Store>) {
    // contract: CHILD-1, CHILD-2, CLAIM-5
    let scene = Scene::new(store).await;
    let (parent, children) = scene.with_children(vec![child(), child(), child()], None).await;
    let snapshot = scene.snapshot(parent).await;
    assert_eq!(
        (snapshot.status, snapshot.children_left),
        (Status::AwaitingChildren, 3)
    );
    assert_eq!((snapshot.step.as_str(), snapshot.visit), ("joined", 1));
    assert_eq!(snapshot.deadline_in, None);
    for (at, end) in [done(), failed(), cancelled()].into_iter().enumerate() {
        assert_eq!(scene.status(parent).await, Status::AwaitingChildren);
        let claimed = scene.claim_children(1).await;
        assert_eq!(ids(&claimed), [children[at]]);
        assert_eq!(claimed[0].coordination.parent, Some(parent));
        assert_eq!(scene.snapshot(children[at]).await.parent, Some(parent));
        let committed = scene.committed(&claimed, end).await;
        let last: &[_] = if at == 2 { &default_queue() } else { &[] };
        assert_eq!(committed.woken, last);
    }
    let snapshot = scene.snapshot(parent).await;
    assert_eq!(
        (snapshot.status, snapshot.due_in),
        (Status::Runnable, Duration::ZERO)
    );
    assert_eq!((snapshot.children_left, snapshot.deadline_fired), (0, false));
    let claimed = scene.claim_one().await;
    assert_eq!(
        (claimed.step.as_str(), value(&claimed.state)),
        ("joined", 3.into())
    );
    assert_eq!((claimed.attempt, claimed.visit), (0, 1));
    assert_eq!(claimed.coordination.parent, None);
    let ended = &claimed.coordination.children;
    let statuses = [Status::Done, Status::Failed, Status::Cancelled];
    let in_order: Vec<_> = children.into_iter().zip(statuses).collect();
    assert_eq!(seen(ended), in_order);
    assert!(ended.iter().all(|child| child.machine == machine("plain", 1)));
    assert_eq!(ended[0].result.as_ref().map(value), Some(true.into()));
    assert_eq!((&ended[0].failure, &ended[1].result), (&None, &None));
    assert_eq!(ended[1].failure, Some(failure("failed")));
    assert!(ended[2].failure.is_some() && ended[2].result.is_none());
}

/// With nobody to wait for the parent goes on at once: no children, or none that were inserted.
pub async fn without_children_the_parent_goes_on_at_once(store: Arc<dyn Store>) {
    // contract: CHILD-1
    let scene = Scene::new(store).await;
    let holder = scene.insert_one(keyed_child("taken")).await;
    for children in [Vec::new(), vec![keyed_child("taken"), keyed_child("taken")]] {
        let (parent, inserted) = scene.with_children(children, None).await;
        assert_eq!(inserted, []);
        let snapshot = scene.snapshot(parent).await;
        assert_eq!(
            (snapshot.status, snapshot.due_in),
            (Status::Runnable, Duration::ZERO)
        );
        assert_eq!((snapshot.step.as_str(), snapshot.visit), ("joined", 1));
        let claimed = scene.claim_one().await;
        assert_eq!(claimed.coordination.children, []);
        scene.committed(&[claimed], done()).await;
    }
    assert_eq!(
        scene.snapshot(holder).await.parent,
        None,
        "a duplicate is nobody's child"
    );
}

/// A child whose key is taken, by anybody or by a sibling, is not inserted and not waited for.
pub async fn duplicates_are_not_waited_for(store: Arc<dyn Store>) {
    // contract: CHILD-1, ID-3
    let scene = Scene::new(store).await;
    let holder = scene.insert_one(keyed_child("taken")).await;
    let four = vec![
        keyed_child("taken"),
        keyed_child("free"),
        keyed_child("free"),
        child(),
    ];
    let (parent, children) = scene.with_children(four, None).await;
    assert_eq!(children.len(), 2);
    assert_eq!(scene.find("free").await, Some(children[0]));
    assert_eq!(scene.snapshot(parent).await.children_left, 2);
    let claimed = scene.claim_children(10).await;
    assert_eq!(ids(&claimed), [holder, children[0], children[1]]);
    assert_eq!(scene.committed(&claimed[..2], done()).await.woken, []);
    assert_eq!(
        scene.committed(&claimed[2..], done()).await.woken,
        default_queue()
    );
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.coordination.children.len(), 2);
}

/// Only the step after the fan-out sees the children.
pub async fn children_are_seen_until_progress(store: Arc<dyn Store>) {
    // contract: CHILD-2
    let scene = Scene::new(store).await;
    for progress in [next(Duration::ZERO), fan_out(Vec::new(), None, None)] {
        scene.with_children(vec![child()], None).await;
        scene.end_child(done()).await;
        for _ in 0..2 {
            let claimed = scene.claim_one().await;
            assert_eq!(claimed.coordination.children.len(), 1);
            scene.release(vec![claimed.fence.claim]).await;
        }
        let claimed = scene.claim_one().await;
        scene.committed(&[claimed], progress).await;
        let claimed = scene.claim_one().await;
        assert_eq!(claimed.coordination.children, []);
        scene.committed(&[claimed], done()).await;
    }
}

/// A child is inserted as anything else: with its own machine, time, priority and step.
pub async fn a_child_stands_as_it_was_given(store: Arc<dyn Store>) {
    // contract: CHILD-1, INS-1
    let scene = Scene::new(store).await;
    let given = NewInstance {
        machine: machine("other", 3),
        priority: -4,
        step: "begin".to_owned(),
        state: json(r#"{"of":"child"}"#),
        ..later()
    };
    let (parent, children) = scene.with_children(vec![given.clone()], None).await;
    let snapshot = scene.snapshot(children[0]).await;
    assert_eq!((snapshot.machine, snapshot.queue), (given.machine, given.queue));
    assert_eq!(
        (snapshot.step, value(&snapshot.state)),
        (given.step, value(&given.state))
    );
    assert!(snapshot.status == Status::Runnable && snapshot.due_in > Duration::ZERO);
    assert_eq!((snapshot.parent, snapshot.visit), (Some(parent), 0));
}

/// A child that cannot be stored, and neither are its siblings nor the parent's outcome.
pub async fn a_refused_child_leaves_the_commit_undone(store: Arc<dyn Store>) {
    // contract: OUT-2, CHILD-1
    let scene = Scene::new(store).await;
    let parent = scene.insert_plain(1).await[0];
    let claimed = [scene.claim_one().await];
    let bad_state = NewInstance {
        state: json("{"),
        ..child()
    };
    let bad_step = NewInstance {
        step: "a\0b".to_owned(),
        ..child()
    };
    for bad in [bad_state, bad_step] {
        let outcomes = vec![outcome(
            &claimed[0],
            fan_out(vec![keyed_child("k"), bad], None, None),
        )];
        let answer = scene.try_commit(scene.worker, outcomes, Vec::new()).await;
        assert_refused(&answer);
    }
    let snapshot = scene.snapshot(parent).await;
    assert_eq!((snapshot.status, snapshot.visit), (Status::Executing, 0));
    assert_eq!(scene.unfinished_children(&[parent]).await, []);
    assert_eq!(scene.find("k").await, None);
    scene
        .committed(&claimed, fan_out(vec![keyed_child("k")], None, None))
        .await;
}

/// An outcome that is stale inserts no children.
pub async fn a_stale_outcome_inserts_no_children(store: Arc<dyn Store>) {
    // contract: CLAIM-4, CHILD-1
    let scene = Scene::new(store).await;
    let parent = scene.insert_plain(1).await[0];
    let claimed = [scene.claim_one().await];
    scene.release(vec![claimed[0].fence.claim]).await;
    let stale = scene
        .commit(&claimed, fan_out(vec![keyed_child("k")], None, None))
        .await;
    assert_eq!(stale, [CommitFate::Stale]);
    assert_eq!(
        (scene.unfinished_children(&[parent]).await, scene.find("k").await),
        (vec![], None)
    );
    assert_eq!(scene.status(parent).await, Status::Runnable);
}

/// What happens to the parent meanwhile is no matter to the child.
pub async fn a_child_may_outlive_its_parent(store: Arc<dyn Store>) {
    // contract: CHILD-2, CHILD-4
    let scene = Scene::new(store).await;
    let (parent, children) = scene.with_children(vec![child(), child()], Some(1)).await;
    scene.end_child(done()).await;
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], done()).await;
    assert_eq!(scene.unfinished_children(&[parent]).await, children[1..]);
    assert_eq!(
        scene.collect_all(KEEP_NOTHING, 10).await,
        2,
        "the parent and its ended child"
    );
    assert_eq!(scene.unfinished_children(&[parent]).await, children[1..]);
    let claimed = scene.claim_children(1).await;
    assert_eq!(claimed[0].coordination.parent, Some(parent));
    assert_eq!(scene.committed(&claimed, done()).await.woken, []);
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 1);
}

/// The children that are left, of any of the parents and any fan-out, in their order.
pub async fn unfinished_children_are_those_that_may_still_run(store: Arc<dyn Store>) {
    // contract: CHILD-2
    let scene = Scene::new(store).await;
    let (one, of_one) = scene.with_children(vec![child(), child()], Some(1)).await;
    let (two, of_two) = scene.with_children(vec![child()], None).await;
    assert_eq!(scene.end_child(done()).await, default_queue());
    let claimed = scene.claim_one().await;
    scene
        .committed(&[claimed], fan_out(vec![child()], None, None))
        .await;
    let left = scene.unfinished_children(&[two, one]).await;
    assert_eq!(left[..2], [of_one[1], of_two[0]]);
    assert_eq!(left.len(), 3, "the child of the second fan-out too");
    assert_eq!(scene.unfinished_children(&[of_one[0]]).await, []);
    assert_eq!(scene.unfinished_children(&[]).await, []);
    let never = InstanceId::new(left[2].get() + 1000);
    assert_eq!(scene.unfinished_children(&[never, two]).await, of_two);
}
