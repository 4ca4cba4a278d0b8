//! Policies that change while keys are in use.

use std::sync::Arc;
use std::time::Duration;

use durable_core::limiter::{Admission, Limit, Limiter};

use super::scene::{HOUR, Policy, Scene, fixed, gate, letters, slow};

/// At once, and by as many as it has grown.
pub async fn a_gate_that_grows_admits_more(limiter: Arc<dyn Limiter>) {
    // contract: LIM-8
    let scene = Scene::new(limiter).await;
    assert_eq!(scene.take(&gate(2), "a", 3).await, 2);
    let grown = gate(5).version(2);
    assert_eq!(
        scene.room(&grown, "a").await,
        3,
        "seen before anybody was admitted by it"
    );
    assert_eq!(scene.take(&grown, "a", 9).await, 3);
    assert_eq!(scene.usage(&grown, "a").await.0, 5);
}

/// Those that run go on; nobody new starts before fewer run than the new policy allows.
pub async fn a_gate_that_shrinks_admits_none_until_it_has_drained(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2, LIM-8
    let scene = Scene::new(limiter).await;
    let mut slots = scene.slots(&gate(4), "a", 4).await;
    let shrunk = gate(2).version(2);
    assert_eq!(scene.take(&shrunk, "a", 1).await, 0);
    assert_eq!(scene.usage(&shrunk, "a").await.1, 0);
    for room in [0, 0, 1, 2] {
        scene.credit(slots.split_off(slots.len() - 1)).await;
        assert_eq!(scene.room(&shrunk, "a").await, room);
    }
    assert_eq!(scene.take(&shrunk, "a", 4).await, 2);
    assert_eq!(scene.take(&gate(9).version(3), "a", 9).await, 7);
}

/// The difference is added or owed.
pub async fn a_burst_that_changes_leaves_what_is_spent_spent(limiter: Arc<dyn Limiter>) {
    // contract: LIM-8
    let scene = Scene::new(limiter).await;
    assert_eq!(scene.take(&fixed(10), "a", 6).await, 6);
    assert_eq!(scene.take(&fixed(8).version(2), "a", 9).await, 2);
    assert_eq!(scene.room(&fixed(5).version(3), "a").await, 0);
    assert_eq!(scene.take(&fixed(5).version(3), "a", 1).await, 0);
    assert_eq!(scene.take(&fixed(9).version(4), "a", 9).await, 1);
    for turn in 0..3 {
        let (low, high) = (fixed(1).version(5 + 2 * turn), fixed(9).version(6 + 2 * turn));
        assert_eq!(scene.take(&low, "a", 1).await, 0);
        assert_eq!(
            scene.take(&high, "a", 1).await,
            0,
            "changing to and fro makes no tokens"
        );
    }
}

/// From the moment that it is seen.
pub async fn a_rate_that_changes_refills_by_the_new_one(limiter: Arc<dyn Limiter>) {
    // contract: LIM-8
    let scene = Scene::new(limiter).await;
    assert_eq!(scene.take(&slow(3), "a", 4).await, 3);
    let quick = Policy::of(Limit::rate(3, Duration::from_millis(30))).version(2);
    assert_eq!(
        scene.take(&quick, "a", 1).await,
        0,
        "what has passed was counted by the old one"
    );
    scene.wait_for_room(&quick, "a", 3).await;
    assert_eq!(scene.take(&quick.clone(), "a", 4).await, 3);
    let stopped = fixed(3).version(3);
    scene.admit(vec![stopped.of_key("a")]).await;
    let left = scene.room(&stopped, "a").await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(scene.room(&stopped, "a").await, left);
}

/// A node that has not heard of a change goes by it all the same.
pub async fn an_older_policy_never_undoes_a_newer_one(limiter: Arc<dyn Limiter>) {
    // contract: LIM-8
    let scene = Scene::new(limiter).await;
    let (old, new) = (gate(5).version(1), gate(2).version(2));
    assert_eq!(scene.take(&new, "a", 1).await, 1);
    assert_eq!(scene.take(&old, "a", 5).await, 1);
    assert_eq!(scene.usage(&old, "a").await.0, 2);
    assert_eq!(scene.room(&old, "a").await, 0);
    assert_eq!(scene.take(&new, "a", 5).await, 0);
    let (old, new) = (fixed(2).version(1).shards(2), slow(6).version(2).shards(1));
    assert_eq!(scene.take(&new, "a", 1).await, 1);
    assert_eq!(scene.take(&old, "a", 9).await, 5);
    let denied = &scene.admit(vec![old.of_key("a")]).await[0];
    assert!(
        matches!(denied, Admission::Denied { look_in: Some(wait), .. } if *wait <= HOUR),
        "{denied:?}: by the rate of the newer one"
    );
}

/// A batch may hold requests from before and after a change.
pub async fn within_one_call_the_newest_policy_counts(limiter: Arc<dyn Limiter>) {
    // contract: LIM-8
    let scene = Scene::new(limiter).await;
    let (old, new) = (gate(5).version(1), gate(2).version(2));
    let requests = vec![new.of_key("a"), old.of_key("a"), old.of_key("a"), new.of_key("a")];
    assert_eq!(letters(&scene.admit(requests).await), "aagg");
}

/// What never fits any more is told apart from what must wait.
pub async fn what_is_too_heavy_is_decided_by_the_newest_policy(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3, LIM-8
    let scene = Scene::new(limiter).await;
    let (old, new) = (fixed(5).version(1), fixed(3).version(2));
    assert_eq!(scene.take(&new, "a", 1).await, 1);
    let answers = scene
        .admit(vec![old.weighing("a", 4), old.weighing("a", 2)])
        .await;
    assert_eq!(answers[0], Admission::TooHeavy { burst: 3 });
    assert_eq!(letters(&answers), "ha");
    let grown = fixed(5).version(3);
    assert_eq!(letters(&scene.admit(vec![grown.weighing("a", 4)]).await), "r");
}
