//! Configured limits: policies, gates and rates, as far as they are the store's.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{BringBack, BroughtBack, LimitKey, NewInstance, Transition};
use durable_core::{Limit, LimitKind, LimitName, RateKey, Status, Store};

use super::scene::{HOUR, Scene, done, entry, ids, limited, limits, queue, with_limits};

const SECOND: Duration = Duration::from_secs(1);

fn blocked(by: LimitKind, look_in: Duration) -> Transition {
    Transition::Blocked { by, look_in }
}

/// A policy is the same for all, its version rises, and a removed one is gone.
pub async fn policies_have_one_rising_version(store: Arc<dyn Store>) {
    // contract: LIM-8
    let scene = Scene::new(store).await;
    let empty = scene.store.limits().await.expect("read");
    assert_eq!((empty.version, empty.limits.len()), (0, 0));
    let first = scene.set_limit("g", Limit::gate(3)).await;
    let second = scene.set_limit("g", Limit::rate(5, SECOND).burst(7)).await;
    let third = scene.set_limit("g", Limit::gate(4)).await;
    assert!(0 < first && first < second && second < third);
    let policies = scene.store.limits().await.expect("read");
    assert_eq!(policies.version, third);
    let mut shown: Vec<_> = policies
        .limits
        .iter()
        .map(|one| (one.version, one.limit))
        .collect();
    shown.sort_by_key(|one| one.0);
    assert_eq!(
        shown,
        [(second, Limit::rate(5, SECOND).burst(7)), (third, Limit::gate(4))]
    );
    let remove = || {
        scene
            .store
            .remove_limit(LimitKind::Gate, LimitName::new("g").expect("a name"))
    };
    assert!(remove().await.expect("answered"));
    assert!(!remove().await.expect("answered"));
    let policies = scene.store.limits().await.expect("read");
    assert!(policies.version > third, "all nodes must notice");
    assert_eq!(policies.limits.len(), 1);
}

/// A key of a gate is not the store's to hold: all are claimed, and say that they need a slot.
pub async fn a_gate_is_left_to_the_limiter(store: Arc<dyn Store>) {
    // contract: LIM-2, LIM-8
    let scene = Scene::new(store).await;
    let version = scene.set_limit("g", Limit::gate(2)).await;
    let same = scene.insert_limited(3, "g:1").await;
    let claimed = scene.answer(scene.ask(10)).await;
    assert_eq!(ids(&claimed.instances), same);
    assert!(claimed.instances.iter().all(|one| one.gated));
    assert_eq!(claimed.limits_version, Some(version));
    assert_eq!(scene.key("g:1").await.holder, None);
}

/// What is blocked waits behind its key as it was; newcomers queue up behind it without being claimed, and it comes back
/// in order, as many as there is room for.
pub async fn what_is_blocked_waits_and_comes_back_in_order(store: Arc<dyn Store>) {
    // contract: LIM-7
    let scene = Scene::new(store).await;
    scene.set_limit("g", Limit::gate(2)).await;
    let same = scene.insert_limited(4, "g:1").await;
    let claimed = scene.claim(10).await;
    let before = scene.snapshot(same[2]).await;
    scene.commit(&claimed[2..], blocked(LimitKind::Gate, HOUR)).await;
    let after = scene.snapshot(same[2]).await;
    assert_eq!(after.waits_for, Some(LimitKind::Gate));
    assert_eq!(
        (after.status, after.attempt, after.visit, after.step, after.state),
        (
            Status::Runnable,
            before.attempt,
            before.visit,
            before.step,
            before.state
        )
    );
    let newcomers = scene.insert_limited(2, "g:1").await;
    let elsewhere = scene.insert_one(limited("g:2")).await;
    let again = scene.answer(scene.ask(10)).await;
    assert_eq!((ids(&again.instances), again.set_aside), (vec![elsewhere], 2));
    assert_eq!(scene.key("g:1").await.waiting, 4);
    assert_eq!(scene.bring_back("g:1", 3).await, 3);
    let back = scene.claim(10).await;
    assert_eq!(
        ids(&back),
        [same[2], same[3], newcomers[0]],
        "past the one that waits"
    );
    scene.commit(&back, blocked(LimitKind::Gate, HOUR)).await;
    assert_eq!(scene.bring_back("g:1", 1).await, 1);
    assert_eq!(ids(&scene.claim(10).await), [same[2]], "in its old place");
}

/// A rate limit brings back what its tokens pay for, and a light one never overtakes a heavy one.
pub async fn tokens_are_spent_in_order(store: Arc<dyn Store>) {
    // contract: LIM-7, LIM-3
    let scene = Scene::new(store).await;
    scene.set_limit("r", Limit::rate(10, SECOND)).await;
    let weights = [2, 5, 1, 1];
    let entries = weights.map(|weight| with_limits("", Some(("r:x", weight))));
    let inserted: Vec<_> = scene
        .insert(entries.to_vec())
        .await
        .iter()
        .map(|one| one.id())
        .collect();
    let claimed = scene.claim(10).await;
    assert_eq!(claimed[1].limits, limits(None, Some(("r:x", 5))));
    assert!(claimed.iter().all(|one| !one.gated));
    scene.commit(&claimed, blocked(LimitKind::Rate, SECOND)).await;
    let brought = scene.bring_back_rate("r:x", 4).await;
    assert_eq!(brought.instances, 1, "the heavy one is next, and cannot be paid");
    assert_eq!(
        brought.look_in,
        Some(Duration::from_millis(300)),
        "three tokens are missing"
    );
    assert_eq!(brought.queues, [queue("default")]);
    assert_eq!(ids(&scene.claim(10).await), [inserted[0]]);
    let brought = scene.bring_back_rate("r:x", 6).await;
    assert_eq!(
        (brought.instances, brought.look_in),
        (2, Some(Duration::from_millis(100)))
    );
    assert_eq!(ids(&scene.claim(10).await), inserted[1..3]);
    let brought = scene.bring_back_rate("r:x", 6).await;
    assert_eq!((brought.instances, brought.look_in), (1, None));
}

/// A weight that the limit can never pay for, as it was lowered, holds up nobody.
pub async fn a_weight_above_the_burst_holds_up_nobody(store: Arc<dyn Store>) {
    // contract: LIM-3, LIM-7
    let scene = Scene::new(store).await;
    scene.set_limit("r", Limit::rate(10, SECOND)).await;
    scene
        .insert(vec![
            with_limits("", Some(("r", 9))),
            with_limits("", Some(("r", 1))),
        ])
        .await;
    let claimed = scene.claim(10).await;
    scene.commit(&claimed, blocked(LimitKind::Rate, SECOND)).await;
    scene.set_limit("r", Limit::rate(2, SECOND)).await;
    assert_eq!(scene.bring_back_rate("r", 2).await.instances, 2);
}

/// A paused key lets nothing start, with or without a limit, until the pause ends.
pub async fn a_paused_key_lets_nothing_start(store: Arc<dyn Store>) {
    // contract: LIM-8
    let scene = Scene::new(store).await;
    scene.set_limit("g", Limit::gate(2)).await;
    let keys = ["k", "g:1"];
    for key in keys {
        scene.pause(key, Some(HOUR)).await;
        let id = scene.insert_one(limited(key)).await;
        assert_eq!(ids(&scene.claim(10).await), [], "{key}");
        assert_eq!(scene.bring_back(key, 5).await, 0, "{key}");
        let left = scene.key(key).await.paused_for.expect("paused");
        assert!(left <= HOUR && left > HOUR / 2);
        scene.pause(key, None).await;
        assert_eq!(scene.key(key).await.paused_for, None);
        assert_eq!(scene.bring_back(key, 5).await, 1, "{key}");
        assert_eq!(ids(&scene.claim(10).await), [id], "{key}");
    }
}

/// A key is looked at when it is time: at once, after a change, or later; and by one at a time.
pub async fn keys_are_looked_at_in_time(store: Arc<dyn Store>) {
    // contract: LIM-7, LIM-8
    let scene = Scene::new(store).await;
    scene.set_limit("g", Limit::gate(2)).await;
    let due = || async { scene.store.due_keys(10).await.expect("answered") };
    assert_eq!(
        (due().await.keys.len(), due().await.next),
        (0, None),
        "nothing waits"
    );
    scene.insert_limited(2, "g:1").await;
    let claimed = scene.claim(10).await;
    scene.commit(&claimed[..1], blocked(LimitKind::Gate, HOUR)).await;
    assert!(due().await.next.is_some_and(|next| next > HOUR / 2));
    scene
        .commit(&claimed[1..], blocked(LimitKind::Gate, Duration::ZERO))
        .await;
    let key = LimitKey::Concurrency(super::scene::concurrency_key("g:1"));
    assert_eq!(
        due().await.keys,
        std::slice::from_ref(&key),
        "the earlier time counts"
    );
    let again = due().await;
    assert_eq!(again.keys, [], "somebody looks at it");
    assert!(
        again.next.is_some_and(|next| next <= SECOND),
        "and another one does, should that one die"
    );
    let version = scene.set_limit("g", Limit::gate(3)).await;
    let changed = due().await;
    assert_eq!(
        (changed.keys, changed.limits_version),
        (vec![key], version),
        "there may be room"
    );
    assert_eq!(scene.bring_back("g:1", 9).await, 2);
    assert_eq!(
        (due().await.keys.len(), due().await.next),
        (0, None),
        "nothing waits any more"
    );
}

/// A crash between the freeing of a key and the bringing back heals, as the key is looked at again.
pub async fn a_freed_key_that_nobody_told_of_is_found(store: Arc<dyn Store>) {
    // contract: LIM-7, CORE-3
    let scene = Scene::new(store).await;
    let same = scene.insert_limited(2, "k").await;
    let claimed = scene.claim(10).await;
    scene.commit_freeing(&claimed[0], done()).await;
    let next = scene.store.due_keys(10).await.expect("answered").next;
    assert!(next.is_some_and(|next| next <= 5 * SECOND), "{next:?}");
    assert_eq!(scene.bring_back("k", 1).await, 1);
    assert_eq!(ids(&scene.claim(10).await), [same[1]]);
}

/// A key that gets a gate while it is held, and one whose gate goes, are not run beside what runs.
pub async fn a_gate_that_comes_or_goes_changes_who_holds(store: Arc<dyn Store>) {
    // contract: LIM-8
    let scene = Scene::new(store).await;
    let same = scene.insert_limited(2, "g:1").await;
    let first = scene.claim(10).await;
    assert_eq!(ids(&first), [same[0]]);
    scene.set_limit("g", Limit::gate(5)).await;
    let third = scene.insert_one(limited("g:1")).await;
    assert_eq!(ids(&scene.claim(10).await), [], "one runs without a slot");
    assert_eq!(scene.bring_back("g:1", 5).await, 0);
    assert_eq!(scene.commit_freeing(&first[0], done()).await, ["g:1"]);
    assert_eq!(scene.bring_back("g:1", 5).await, 2);
    let both = scene.claim(10).await;
    assert_eq!(ids(&both), [same[1], third]);
    assert!(both.iter().all(|one| one.gated));
    let gone = scene
        .store
        .remove_limit(LimitKind::Gate, LimitName::new("g").expect("a name"));
    assert!(gone.await.expect("answered"));
    let fourth = scene.insert_one(limited("g:1")).await;
    let claimed = scene.claim(10).await;
    assert_eq!(ids(&claimed), [fourth]);
    assert!(!claimed[0].gated, "one at a time from now on");
}

/// Both limits are an instance's own; it waits for one of them at a time.
pub async fn two_limits_are_waited_for_one_after_the_other(store: Arc<dyn Store>) {
    // contract: LIM-4, LIM-7
    let scene = Scene::new(store).await;
    scene.set_limit("r", Limit::rate(1, SECOND)).await;
    let both = || with_limits("k", Some(("r", 1)));
    let ordered: Vec<_> = scene
        .insert(vec![both(), both()])
        .await
        .iter()
        .map(|one| one.id())
        .collect();
    let claimed = scene.claim(10).await;
    assert_eq!(ids(&claimed), [ordered[0]]);
    let outcome = super::scene::outcome(&claimed[0], blocked(LimitKind::Rate, SECOND));
    let committed = scene
        .try_commit_and_wake(scene.worker, vec![outcome], Vec::new())
        .await
        .expect("committed");
    let freed: Vec<_> = committed.freed.iter().map(ToString::to_string).collect();
    assert_eq!(freed, ["k"], "one that waits for tokens does not hold its key");
    assert_eq!(scene.key("k").await.holder, None);
    assert_eq!(scene.bring_back("k", 1).await, 1);
    assert_eq!(
        ids(&scene.claim(10).await),
        [ordered[1]],
        "brought back, it is claimed, and asks for tokens"
    );
    let unknown = BringBack {
        key: LimitKey::Rate(RateKey::new("never:seen").expect("a key")),
        room: 5,
        unit: None,
    };
    let brought = scene.store.bring_back(vec![unknown]).await.expect("answered");
    assert_eq!(brought, [BroughtBack::default()]);
}

/// A rate limit is the next step's: it goes with the transition, and stays with what is tried again.
pub async fn limits_stand_as_they_were_given(store: Arc<dyn Store>) {
    // contract: INS-1, LIM-3
    let scene = Scene::new(store).await;
    let given = NewInstance {
        limits: limits(Some("k"), Some(("r:a", 3))),
        ..entry()
    };
    let id = scene.insert_one(given).await;
    assert_eq!(
        scene.snapshot(id).await.limits,
        limits(Some("k"), Some(("r:a", 3)))
    );
    let claimed = scene.claim(1).await;
    assert_eq!(claimed[0].limits, limits(Some("k"), Some(("r:a", 3))));
}
