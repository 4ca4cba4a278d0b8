//! Keys that are as good as never used are forgotten.

use std::sync::Arc;
use std::time::Duration;

use durable_core::limiter::{Limit, Limiter};

use super::scene::{Policy, Scene, fixed, gate};

/// A key that is forgotten would have its whole budget again.
pub async fn what_is_in_use_is_never_forgotten(limiter: Arc<dyn Limiter>) {
    // contract: LIM-11
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(4).shards(3), fixed(4).shards(3));
    assert_eq!(scene.take(&gate, "a", 1).await, 1);
    assert_eq!(scene.take(&rate, "a", 1).await, 1);
    for _ in 0..3 {
        assert_eq!(scene.maintain().await.swept, 0);
    }
    assert_eq!(scene.room(&gate, "a").await, 3);
    assert_eq!(scene.room(&rate, "a").await, 3);
    assert_eq!(scene.take(&gate, "a", 5).await, 3);
    assert_eq!(scene.take(&rate, "a", 5).await, 3);
}

/// It cannot be told from one that is full.
pub async fn what_is_forgotten_has_its_whole_budget(limiter: Arc<dyn Limiter>) {
    // contract: LIM-6, LIM-11
    let scene = Scene::new(limiter).await;
    let gate = gate(4).shards(3);
    for key in ["a", "b", "c"] {
        let slots = scene.slots(&gate, key, 4).await;
        scene.credit(slots).await;
    }
    for _ in 0..3 {
        scene.limiter.maintain(1).await.expect("maintained");
        for key in ["a", "b", "c"] {
            assert_eq!(scene.room(&gate, key).await, 4);
        }
    }
    for key in ["a", "b", "c"] {
        assert_eq!(scene.take(&gate, key, 9).await, 4);
    }
}

/// A bucket that is full again holds nothing worth keeping.
pub async fn what_has_refilled_may_be_forgotten(limiter: Arc<dyn Limiter>) {
    // contract: LIM-11
    let scene = Scene::new(limiter).await;
    let rate = Policy::of(Limit::rate(7, Duration::from_millis(7))).shards(2);
    assert_eq!(scene.take(&rate, "a", 7).await, 7);
    scene.maintain().await;
    scene.wait_for_room(&rate, "a", 7).await;
    scene.maintain().await;
    assert_eq!(scene.room(&rate, "a").await, 7);
    assert_eq!(scene.take(&rate, "a", 20).await, 7);
}

/// What is forgotten is only what nobody spends from.
pub async fn policies_survive_while_something_is_spent(limiter: Arc<dyn Limiter>) {
    // contract: LIM-8, LIM-11
    let scene = Scene::new(limiter).await;
    let (old, new) = (gate(5), gate(2).version(2));
    assert_eq!(scene.take(&new, "a", 1).await, 1);
    scene.maintain().await;
    assert_eq!(scene.take(&old, "a", 5).await, 1);
}
