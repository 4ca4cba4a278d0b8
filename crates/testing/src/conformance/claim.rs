//! Claims: which instances, in which order, and what comes with them.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Beat, ClaimRequest, ClaimedInstance, Eligible, Inserted, NewInstance, Transition};
use durable_core::{Status, Store};

use super::scene::{
    HOUR, Scene, alive, done, entry, failure, ids, json, later, machine, next, queue, retry, value,
};

/// Lower priorities first, then the earlier eligible time, and the order of the insert within one batch.
pub async fn the_order_is_priority_then_time_then_insert(store: Arc<dyn Store>) {
    // contract: CLAIM-1
    let scene = Scene::new(store).await;
    let of = |priority| NewInstance { priority, ..entry() };
    let first = scene
        .insert(vec![of(5), of(-3), of(5), of(i16::MAX), of(i16::MIN)])
        .await;
    let second = scene.insert(vec![of(-3), of(5), of(i16::MIN)]).await;
    let expected = [
        first[4], second[2], first[1], second[0], first[0], first[2], second[1], first[3],
    ];
    let expected = expected.map(Inserted::id);
    let mut claimed = ids(&scene.claim(3).await);
    claimed.extend(ids(&scene.claim(10).await));
    assert_eq!(claimed, expected);
}

/// The order is that of the queue, whatever machines stand in it; each says which it is.
pub async fn the_machines_of_a_queue_share_one_order(store: Arc<dyn Store>) {
    // contract: CLAIM-1
    let scene = Scene::new(store).await;
    let of = |name, version, priority| NewInstance {
        machine: machine(name, version),
        priority,
        ..entry()
    };
    let inserted = scene
        .insert(vec![
            of("b", 1, 2),
            of("a", 1, 2),
            of("a", 2, 1),
            of("b", 1, 1),
            of("a", 1, 0),
            of("a", 2, 2),
        ])
        .await;
    let request = ClaimRequest {
        machines: Arc::new([machine("a", 2), machine("b", 1), machine("a", 1)]),
        ..scene.ask(2)
    };
    let claimed = scene.answer(request.clone()).await.instances;
    let shown =
        |claimed: &[ClaimedInstance]| -> Vec<_> { claimed.iter().map(|one| (one.id, one.machine)).collect() };
    let expected = |order: &[(usize, usize)]| -> Vec<_> {
        let named = order.iter().map(|(at, machine)| (inserted[*at].id(), *machine));
        named.collect()
    };
    assert_eq!(shown(&claimed), expected(&[(4, 2), (2, 0)]));
    let rest = ClaimRequest {
        number: scene.ask(0).number,
        limit: 10,
        ..request
    };
    let rest = scene.answer(rest).await.instances;
    assert_eq!(shown(&rest), expected(&[(3, 1), (0, 1), (1, 2), (5, 0)]));
}

/// A claim takes nothing early, and says how long the queue's next instance has to wait.
pub async fn what_is_eligible_later_is_left_and_said_when_due(store: Arc<dyn Store>) {
    // contract: CLAIM-1
    let scene = Scene::new(store).await;
    let claimed = scene.answer(scene.ask(10)).await;
    assert_eq!((claimed.instances.len(), claimed.next_due), (0, None));
    let eager = NewInstance {
        priority: -1,
        ..later()
    };
    let inserted = scene.insert(vec![eager, entry()]).await;
    let claimed = scene.answer(scene.ask(10)).await;
    assert_eq!(ids(&claimed.instances), [inserted[1].id()]);
    let due = claimed.next_due.expect("one waits");
    assert!(due > HOUR / 2 && due <= HOUR, "{due:?}");
    assert_eq!(scene.standing(inserted[0].id()).await, (Status::Runnable, 0, 0));
    let half = NewInstance {
        eligible: Eligible::In(HOUR / 2),
        ..entry()
    };
    scene.insert_one(half).await;
    let due = scene.answer(scene.ask(10)).await.next_due.expect("two wait");
    assert!(due <= HOUR / 2, "the earliest counts, not {due:?}");
}

/// What a worker does not know is neither claimed nor counted as due.
pub async fn unknown_machines_and_versions_are_left_alone(store: Arc<dyn Store>) {
    // contract: FSM-5, FSM-1
    let scene = Scene::new(store).await;
    let of = |name, version, base| NewInstance {
        machine: machine(name, version),
        priority: -1,
        ..base
    };
    let inserted = scene
        .insert(vec![
            of("other", 1, entry()),
            of("plain", 2, entry()),
            of("plain", 2, later()),
            entry(),
        ])
        .await;
    let claimed = scene.answer(scene.ask(10)).await;
    assert_eq!(ids(&claimed.instances), [inserted[3].id()]);
    assert_eq!(claimed.next_due, None);
    for left in &inserted[..3] {
        assert_eq!(scene.standing(left.id()).await, (Status::Runnable, 0, 0));
    }
    let nothing = ClaimRequest {
        machines: Arc::new([]),
        ..scene.ask(10)
    };
    let claimed = scene.answer(nothing).await;
    assert_eq!((claimed.instances.len(), claimed.next_due), (0, None));
}

/// A claim is of one queue.
pub async fn other_queues_are_left_alone(store: Arc<dyn Store>) {
    // contract: CLAIM-1
    let scene = Scene::new(store).await;
    let elsewhere = |base| NewInstance {
        queue: queue("other"),
        priority: -1,
        ..base
    };
    let inserted = scene
        .insert(vec![elsewhere(entry()), entry(), elsewhere(later())])
        .await;
    let claimed = scene.answer(scene.ask(10)).await;
    assert_eq!(ids(&claimed.instances), [inserted[1].id()]);
    assert_eq!(claimed.next_due, None);
    let request = ClaimRequest {
        queue: queue("other"),
        ..scene.ask(10)
    };
    let claimed = scene.answer(request).await;
    assert_eq!(ids(&claimed.instances), [inserted[0].id()]);
    assert!(claimed.next_due.is_some());
}

/// Never more than asked for, and all of it when there is enough.
pub async fn the_limit_is_kept(store: Arc<dyn Store>) {
    // contract: CLAIM-2
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(7).await;
    assert_eq!(scene.claim(0).await.len(), 0);
    assert_eq!(ids(&scene.claim(3).await), inserted[..3]);
    assert_eq!(ids(&scene.claim(usize::MAX).await), inserted[3..]);
    assert_eq!(scene.claim(10).await.len(), 0);
}

/// A claim that found nothing is no claim: nobody has to close it.
pub async fn an_empty_claim_leaves_nothing_behind(store: Arc<dyn Store>) {
    // contract: CLAIM-6, LEASE-1
    let scene = Scene::new(store).await;
    scene.insert_one(later()).await;
    assert_eq!(scene.claim(10).await.len(), 0);
    assert_eq!(scene.beat(scene.worker, HOUR).await, alive(&[]));
    scene.store.retire(scene.worker).await.expect("retired");
    assert_eq!(scene.beat(scene.worker, HOUR).await, Beat::Dead);
}

/// What executes is in no other claim, of the same worker or of another.
pub async fn what_is_claimed_is_not_claimed_again(store: Arc<dyn Store>) {
    // contract: CLAIM-2, CLAIM-4
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(2).await;
    let other = scene.register(HOUR, None).await;
    assert_eq!(ids(&scene.claim(1).await), inserted[..1]);
    assert_eq!(ids(&scene.claim_by(other, 10).await), inserted[1..]);
    assert_eq!(scene.claim(10).await.len(), 0);
    for id in inserted {
        assert_eq!(scene.standing(id).await, (Status::Executing, 0, 0));
    }
}

/// A claimed instance carries all that its step needs.
pub async fn a_claim_brings_what_the_last_outcome_wrote(store: Arc<dyn Store>) {
    // contract: CLAIM-1, FSM-6
    let scene = Scene::new(store).await;
    scene.insert_plain(1).await;
    let claimed = scene.claim(1).await;
    let shown = |one: &ClaimedInstance| (one.step.clone(), value(&one.state), one.attempt, one.crashes);
    assert_eq!(shown(&claimed[0]), ("first".to_owned(), 0.into(), 0, 0));
    let again = Transition::Retry {
        state: Some(json("[5]")),
        delay: Duration::ZERO,
        failure: Some(failure("a fault")),
    };
    scene.commit(&claimed, again).await;
    let claimed = scene.claim(1).await;
    assert_eq!(
        shown(&claimed[0]),
        ("first".to_owned(), serde_json::json!([5]), 1, 0)
    );
    scene.commit(&claimed, next(Duration::ZERO)).await;
    let claimed = scene.claim(1).await;
    assert_eq!(shown(&claimed[0]), ("second".to_owned(), 1.into(), 0, 0));
}

/// An outcome without a delay is eligible from the commit on: behind what was inserted before it.
pub async fn what_comes_back_stands_behind_what_was_there(store: Arc<dyn Store>) {
    // contract: CLAIM-1
    let scene = Scene::new(store).await;
    let old = scene.insert_plain(3).await;
    let claimed = scene.claim(3).await;
    let young = scene.insert_plain(1).await;
    assert_eq!(scene.commit(&claimed[1..2], next(Duration::ZERO)).await.len(), 1);
    assert_eq!(scene.commit(&claimed[..1], retry()).await.len(), 1);
    scene.commit(&claimed[2..], done()).await;
    assert_eq!(ids(&scene.claim(10).await), [young[0], old[1], old[0]]);
}
