//! Recovery: what the reaper and a release return, and what a lost answer turned out to be.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{CommitFate, Resolution, Transition};
use durable_core::{ClaimNumber, Status, Store};

use super::scene::{HOUR, Scene, done, failure, ids, json, next, retry, value};

/// All else stands as the last outcome wrote it.
pub async fn reaped_work_counts_an_attempt_and_a_crash(store: Arc<dyn Store>) {
    // contract: LEASE-2, CORE-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim(1).await;
    let again = Transition::Retry {
        state: Some(json("[1]")),
        delay: Duration::ZERO,
        failure: Some(failure("before")),
    };
    scene.commit(&claimed, again).await;
    scene.claim(1).await;
    scene.declare_dead(scene.worker).await;
    let reaped = scene.reap_all(10).await;
    assert_eq!(
        (reaped.workers, reaped.instances),
        (0, 1),
        "it was declared dead before"
    );
    let snapshot = scene.snapshot(id).await;
    assert_eq!(snapshot.status, Status::Runnable);
    assert_eq!((snapshot.attempt, snapshot.crashes), (2, 1));
    assert_eq!(
        (snapshot.step.as_str(), value(&snapshot.state)),
        ("first", serde_json::json!([1]))
    );
    assert_eq!(snapshot.failure, Some(failure("before")));
    assert_eq!(snapshot.due_in, Duration::ZERO);
    assert_eq!(scene.reap_all(10).await.instances, 0, "once");
}

/// Deaths in a row add up, through releases; an outcome of the step ends the row.
pub async fn crashes_count_until_an_outcome(store: Arc<dyn Store>) {
    // contract: LEASE-2, FSM-6
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    for crashes in 1..=3 {
        let dead = scene.register(HOUR, None).await;
        scene.claim_by(dead, 1).await;
        scene.declare_dead(dead).await;
        scene.reap_all(10).await;
        assert_eq!(scene.standing(id).await, (Status::Runnable, crashes, crashes));
        let claimed = scene.claim(1).await;
        assert_eq!((claimed[0].attempt, claimed[0].crashes), (crashes, crashes));
        scene.release(vec![claimed[0].fence.claim]).await;
    }
    let claimed = scene.claim(1).await;
    scene.commit(&claimed, retry()).await;
    assert_eq!(scene.standing(id).await, (Status::Runnable, 4, 0));
}

/// What was committed from a claim is not undone when the rest of it is taken back.
pub async fn the_reaper_takes_only_what_is_left(store: Arc<dyn Store>) {
    // contract: LEASE-2, CORE-2
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(4).await;
    let claimed = scene.claim(4).await;
    scene.commit(&claimed[..1], done()).await;
    scene.commit(&claimed[1..2], next(Duration::ZERO)).await;
    scene.commit(&claimed[2..3], Transition::GiveBack).await;
    scene.declare_dead(scene.worker).await;
    assert_eq!(scene.reap_all(10).await.instances, 1);
    let standings = [
        (Status::Done, 0, 0),
        (Status::Runnable, 0, 0),
        (Status::Runnable, 0, 0),
        (Status::Runnable, 1, 1),
    ];
    for (id, standing) in inserted.into_iter().zip(standings) {
        assert_eq!(scene.standing(id).await, standing);
    }
    let other = scene.register(HOUR, None).await;
    assert_eq!(scene.claim_by(other, 10).await.len(), 3, "each has one place");
}

/// A round returns about as much as asked for, and says whether to come again.
pub async fn the_reaper_works_in_rounds(store: Arc<dyn Store>) {
    // contract: LEASE-2, LEASE-5
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(60).await;
    let dead = [scene.register(HOUR, None).await, scene.register(HOUR, None).await];
    for _ in 0..15 {
        for worker in dead {
            assert_eq!(scene.claim_by(worker, 2).await.len(), 2);
        }
    }
    scene.store.declare_dead(dead.to_vec()).await.expect("declared");
    let first = scene.reap(4).await;
    assert!(first.more, "{first:?}");
    assert!((1..=8).contains(&first.instances), "about 4, not {first:?}");
    let rest = scene.reap_all(4).await;
    assert_eq!(first.instances + rest.instances, 60);
    for id in inserted {
        assert_eq!(scene.standing(id).await, (Status::Runnable, 1, 1));
    }
    let idle = scene.reap(4).await;
    assert_eq!((idle.workers, idle.instances, idle.more), (0, 0, false));
}

/// Claims of which nothing is left do not hide the ones behind them from a reaper that asks until it is
/// told that nothing more is to do; and when all is done in one round, that is what it is told.
pub async fn the_reaper_says_more_while_claims_of_the_dead_are_left(store: Arc<dyn Store>) {
    // contract: LEASE-2
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(41).await;
    for _ in 0..40 {
        let claimed = scene.claim(1).await;
        scene.commit(&claimed, done()).await;
    }
    scene.claim(1).await;
    scene.declare_dead(scene.worker).await;
    assert_eq!(scene.reap_all(100).await.instances, 1);
    assert_eq!(scene.standing(inserted[40]).await, (Status::Runnable, 1, 1));
    let last = scene.register(HOUR, None).await;
    scene.claim_by(last, 1).await;
    scene.declare_dead(last).await;
    let only = scene.reap(100).await;
    assert_eq!((only.instances, only.more), (1, false));
}

/// Work that never reached the worker, or that it gives back, was not tried.
pub async fn a_release_counts_nothing(store: Arc<dyn Store>) {
    // contract: CLAIM-6
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(2).await;
    let before = scene.snapshots(&inserted).await;
    let claimed = scene.claim(2).await;
    let number = claimed[0].fence.claim;
    scene.release(vec![number, number]).await;
    assert_eq!(scene.snapshots(&inserted).await, before);
    assert_eq!(scene.commit(&claimed, done()).await, [CommitFate::Stale; 2]);
    scene.release(vec![number]).await;
    assert_eq!(ids(&scene.claim(10).await), inserted);
}

/// Claims that are not there, or another worker's under the same number, are nobody's to release.
pub async fn a_release_takes_only_what_is_left_of_its_own_claims(store: Arc<dyn Store>) {
    // contract: CLAIM-6, CLAIM-4
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(3).await;
    let other = scene.register(HOUR, None).await;
    let others = scene.claim_by(other, 1).await;
    let claimed = scene.claim(2).await;
    scene.commit(&claimed[..1], done()).await;
    let unknown = ClaimNumber::new(99);
    scene.release(vec![others[0].fence.claim, unknown]).await;
    scene.release(Vec::new()).await;
    assert_eq!(scene.standing(inserted[0]).await, (Status::Executing, 0, 0));
    assert_eq!(scene.standing(inserted[2]).await, (Status::Executing, 0, 0));
    scene.release(vec![unknown, claimed[0].fence.claim]).await;
    assert_eq!(scene.standing(inserted[1]).await, (Status::Done, 0, 0));
    assert_eq!(scene.standing(inserted[2]).await, (Status::Runnable, 0, 0));
    scene.release(vec![claimed[0].fence.claim]).await;
    assert_eq!(ids(&scene.claim(10).await), inserted[2..]);
}

/// A crash or a release costs nobody the place in the queue.
pub async fn what_is_taken_back_keeps_its_place(store: Arc<dyn Store>) {
    // contract: LEASE-2, CLAIM-1
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(3).await;
    let dead = scene.register(HOUR, None).await;
    let released = scene.claim(1).await;
    scene.claim_by(dead, 1).await;
    let young = scene.insert_plain(1).await[0];
    scene.declare_dead(dead).await;
    scene.reap_all(10).await;
    scene.release(vec![released[0].fence.claim]).await;
    let order = [inserted[0], inserted[1], inserted[2], young];
    assert_eq!(ids(&scene.claim(10).await), order);
}

/// A worker whose commit gave no answer asks what stands.
pub async fn a_lost_answer_is_resolved(store: Arc<dyn Store>) {
    // contract: OUT-3
    let scene = Scene::new(store).await;
    scene.insert_plain(4).await;
    let (first, second) = (scene.claim(3).await, scene.claim(1).await);
    scene.commit(&first[..1], next(Duration::ZERO)).await;
    scene.commit(&first[2..], done()).await;
    let other = scene.register(HOUR, None).await;
    assert_eq!(
        ids(&scene.claim_by(other, 1).await),
        ids(&first[..1]),
        "claimed on"
    );
    scene.release(vec![second[0].fence.claim]).await;
    let asked = [&second[..], &first[..], &first[1..2]].concat();
    let (yes, no, lost) = (Resolution::Committed, Resolution::NotCommitted, Resolution::Lost);
    assert_eq!(scene.resolve(&asked).await, [lost, yes, no, yes, no]);
    assert_eq!(scene.resolve(&[]).await, []);
    assert_eq!(scene.commit(&first[1..2], done()).await, [CommitFate::Committed]);
}

/// Neither committed, nor to be committed again.
pub async fn a_claim_that_was_taken_back_resolves_as_lost(store: Arc<dyn Store>) {
    // contract: OUT-3, LEASE-4
    let scene = Scene::new(store).await;
    scene.insert_plain(2).await;
    let claimed = scene.claim(2).await;
    scene.commit(&claimed[..1], done()).await;
    scene.declare_dead(scene.worker).await;
    scene.reap_all(10).await;
    assert_eq!(scene.resolve(&claimed).await, [Resolution::Lost; 2]);
    let mut never = claimed.clone();
    never[0].fence.claim = ClaimNumber::new(99);
    assert_eq!(scene.resolve(&never[..1]).await, [Resolution::Lost]);
}
