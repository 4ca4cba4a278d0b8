//! Budgets that are split over several counters: nobody can tell, but by speed. A backend without shards passes too.

use std::sync::Arc;
use std::time::Duration;

use durable_core::limiter::{Limit, Limiter};
use tokio::time::Instant;

use super::scene::{HOUR, Policy, Scene, admit, admitted, fixed, gate, letters, slots_of};

/// Also where the budget cannot be split evenly.
pub async fn the_shards_together_are_the_limit(limiter: Arc<dyn Limiter>) {
    // contract: LIM-5
    let scene = Scene::new(limiter).await;
    for (budget, shards) in [(10, 4), (7, 7), (3, 2), (16, 5), (1, 1)] {
        let key = format!("{budget} over {shards}");
        let (gate, rate) = (gate(budget).shards(shards), fixed(budget).shards(shards));
        assert_eq!(scene.room(&gate, &key).await, budget);
        let all = budget as usize;
        assert_eq!(scene.take(&gate, &key, all + 3).await, all);
        assert_eq!(scene.take(&rate, &key, all + 3).await, all);
        assert_eq!(scene.usage(&rate, &key).await, (budget, 0, vec![]));
    }
}

/// One by one as well as all at once; and what it gives back, wherever that came from.
pub async fn a_lone_holder_can_use_all_shards(limiter: Arc<dyn Limiter>) {
    // contract: LIM-5
    let scene = Scene::new(limiter).await;
    let second = scene.join("second", HOUR).await;
    let gate = gate(9).shards(4);
    let mut slots = Vec::new();
    for _ in 0..9 {
        slots.extend(scene.slots(&gate, "a", 1).await);
    }
    assert_eq!(slots.len(), 9);
    assert_eq!(scene.take(&gate, "a", 1).await, 0);
    scene.credit(slots.split_off(4)).await;
    assert_eq!(admitted(&admit(&*second, vec![gate.of_key("a"); 9]).await), 5);
}

/// As long as the sum suffices.
pub async fn a_weight_may_take_several_shards_together(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3, LIM-5
    let scene = Scene::new(limiter).await;
    let rate = fixed(8).shards(4);
    let weights = [5, 3, 1];
    let answers = scene
        .admit(weights.map(|weight| rate.weighing("a", weight)).to_vec())
        .await;
    assert_eq!(letters(&answers), "aar");
    let weights = [1, 1, 1, 5, 1];
    let answers = scene
        .admit(weights.map(|weight| rate.weighing("b", weight)).to_vec())
        .await;
    assert_eq!(letters(&answers), "aaaar", "no matter how they lie");
    let weights = [3, 6, 4, 1];
    let answers = scene
        .admit(weights.map(|weight| rate.weighing("c", weight)).to_vec())
        .await;
    assert_eq!(letters(&answers), "arrr");
    assert_eq!(scene.room(&rate, "c").await, 5);
}

/// A token that is refilled in pieces, one on each shard, is a token.
pub async fn fractions_of_all_shards_count(limiter: Arc<dyn Limiter>) {
    // contract: LIM-5
    let scene = Scene::new(limiter).await;
    // One token takes 2 ms; on a shard of its own it would take 100 ms.
    let rate = Policy::of(Limit::rate(500, Duration::from_secs(1)).burst(100)).shards(50);
    let before = Instant::now();
    assert_eq!(scene.take(&rate, "a", 100).await, 100);
    let spent = Instant::now();
    let mut taken = 0;
    while taken < 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let least = spent.elapsed().as_millis() / 2;
        taken += scene.take(&rate, "a", 100).await;
        let most = before.elapsed().as_millis() / 2;
        assert!(
            (least.min(100)..=most).contains(&(taken as u128)),
            "{taken}, not {least} to {most}"
        );
    }
}

/// Up and down, while in use.
pub async fn the_number_of_shards_changes_without_loss(limiter: Arc<dyn Limiter>) {
    // contract: LIM-5, LIM-8
    let scene = Scene::new(limiter).await;
    let mut held = Vec::new();
    for (version, shards) in (1..).zip([1, 4, 2, 8, 3]) {
        let gate = gate(8).shards(shards).version(version);
        held.extend(scene.slots(&gate, "a", 3).await);
        assert_eq!(scene.room(&gate, "a").await, 5);
        assert_eq!(
            scene.take(&gate, "full", 9).await,
            if version == 1 { 8 } else { 0 }
        );
        let back = held.split_off(1);
        scene.credit(back).await;
        assert_eq!(scene.room(&gate, "a").await, 7);
        scene.credit(std::mem::take(&mut held)).await;
        let rate = fixed(8).shards(shards).version(version);
        assert_eq!(scene.take(&rate, "a", 1).await, 1);
        assert_eq!(i64::from(scene.room(&rate, "a").await), 8 - version);
    }
    let last = gate(8).shards(1).version(9);
    assert_eq!(scene.take(&last, "a", 9).await, 8);
}

/// What is owed on one shard is not taken from another.
pub async fn a_sharded_gate_that_shrinks_drains_first(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2, LIM-5, LIM-8
    let scene = Scene::new(limiter).await;
    let second = scene.join("second", HOUR).await;
    let wide = gate(9).shards(3);
    let mut slots = scene.slots(&wide, "a", 4).await;
    let others = slots_of(&admit(&*second, vec![wide.of_key("a"); 3]).await);
    let shrunk = gate(4).shards(2).version(2);
    assert_eq!(scene.take(&shrunk, "a", 1).await, 0);
    assert_eq!(scene.room(&shrunk, "a").await, 0);
    scene.credit(slots.split_off(1)).await;
    assert_eq!(scene.room(&shrunk, "a").await, 0, "four of four are in use");
    second.credit(others).await.expect("given back");
    assert_eq!(scene.room(&shrunk, "a").await, 3);
    assert_eq!(admitted(&admit(&*second, vec![shrunk.of_key("a"); 4]).await), 3);
    scene.credit(slots).await;
    assert_eq!(scene.take(&shrunk, "a", 4).await, 1);
}
