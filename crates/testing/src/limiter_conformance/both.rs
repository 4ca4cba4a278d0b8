//! Requests with a gate and a rate limit.

use std::sync::Arc;

use durable_core::limiter::Limiter;

use super::scene::{Scene, fixed, gate, letters, slots_of};

/// A full gate costs no token.
pub async fn neither_is_charged_when_the_gate_denies(limiter: Arc<dyn Limiter>) {
    // contract: LIM-4
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(1), fixed(5));
    let both = gate.and("a", rate.rate_use("a", 2));
    assert_eq!(letters(&scene.admit(vec![both.clone(); 2]).await), "ag");
    assert_eq!(scene.room(&rate, "a").await, 3);
    assert_eq!(letters(&scene.admit(vec![both]).await), "g");
    assert_eq!(scene.room(&rate, "a").await, 3);
}

/// An empty bucket holds no slot.
pub async fn neither_is_charged_when_the_rate_denies(limiter: Arc<dyn Limiter>) {
    // contract: LIM-4
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(5), fixed(3));
    let both = gate.and("a", rate.rate_use("a", 2));
    assert_eq!(letters(&scene.admit(vec![both; 3]).await), "arr");
    assert_eq!(scene.room(&gate, "a").await, 4);
    assert_eq!(scene.room(&rate, "a").await, 1);
    assert_eq!(scene.usage(&gate, "a").await.2, [("first".to_owned(), 1)]);
}

/// Freed slots are what brings such a request back; the rate limit is looked at then.
pub async fn the_gate_denies_when_neither_has_room(limiter: Arc<dyn Limiter>) {
    // contract: LIM-4
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(1), fixed(1));
    let both = gate.and("a", rate.rate_use("a", 1));
    let answers = scene.admit(vec![both.clone(); 2]).await;
    assert_eq!(letters(&answers), "ag");
    scene.credit(slots_of(&answers)).await;
    assert_eq!(letters(&scene.admit(vec![both]).await), "r");
    assert_eq!(scene.room(&gate, "a").await, 1);
}

/// A request waits only for the one that denied it; the other stays open for who comes later.
pub async fn who_is_denied_by_one_does_not_hold_up_the_other(limiter: Arc<dyn Limiter>) {
    // contract: LIM-4, LIM-7
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(1), fixed(1));
    scene.take(&rate, "empty", 1).await;
    scene.take(&gate, "full", 1).await;
    let answers = scene
        .admit(vec![
            gate.and("a", rate.rate_use("empty", 1)),
            gate.of_key("a"),
            gate.and("full", rate.rate_use("b", 1)),
            rate.of_key("b"),
            gate.and("c", rate.rate_use("c", 1)),
        ])
        .await;
    assert_eq!(letters(&answers), "ragaa");
}

/// Not even for a moment.
pub async fn what_is_too_heavy_takes_no_slot(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3, LIM-4
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(1), fixed(2));
    let answers = scene
        .admit(vec![
            gate.and("a", rate.rate_use("a", 3)),
            gate.and("a", rate.rate_use("a", 2)),
        ])
        .await;
    assert_eq!(letters(&answers), "ha");
    assert_eq!(scene.room(&rate, "a").await, 0);
    let full = scene.admit(vec![gate.and("a", rate.rate_use("a", 3))]).await;
    assert_eq!(letters(&full), "h", "whatever the gate says");
}

/// The same key may be a gate's and a rate limit's.
pub async fn gates_and_rates_of_one_name_are_apart(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2, LIM-3
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(2), fixed(3));
    assert_eq!(scene.take(&gate, "a", 5).await, 2);
    assert_eq!(scene.take(&rate, "a", 5).await, 3);
    assert_eq!(scene.room(&gate, "a").await, 0);
    assert_eq!(scene.room(&rate, "b").await, 3);
}
