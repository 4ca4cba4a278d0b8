//! Deadlines of waits.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::Expired;
use durable_core::{InstanceId, MAX_DURATION, Status, Store};

use super::scene::{HOUR, Scene, done, next, retry};
use super::waiting::{await_signals, child, default_queue, expected, fan_out, names, numbered};

/// A round with nothing to do, and nothing to come.
fn idle() -> Expired {
    Expired::default()
}

/// A timeout is a wake and no failure: the attempt stays, and the step is told.
pub async fn a_deadline_wakes_and_says_so(store: Arc<dyn Store>) {
    // contract: SIG-4
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], Some(Duration::ZERO)).await;
    let expired = scene.expire(10).await;
    assert_eq!(
        expired,
        Expired {
            instances: 1,
            woken: default_queue().to_vec(),
            next: None,
            more: false,
        }
    );
    assert_eq!(scene.expire(10).await, idle(), "it fires once");
    let snapshot = scene.snapshot(id).await;
    assert_eq!(
        (snapshot.status, snapshot.due_in),
        (Status::Runnable, Duration::ZERO)
    );
    assert!(snapshot.deadline_fired);
    assert_eq!((snapshot.deadline_in, snapshot.failure), (None, None));
    let claimed = scene.claim_one().await;
    assert_eq!(
        (claimed.step.as_str(), claimed.attempt, claimed.crashes),
        ("woken", 0, 0)
    );
    assert!(claimed.coordination.deadline_fired);
    assert_eq!(claimed.coordination.awaited, names(&["a"]));
    // It is told as long as the step is tried, and to no other step.
    scene.committed(&[claimed], retry()).await;
    let claimed = scene.claim_one().await;
    assert!(claimed.coordination.deadline_fired);
    scene.release(vec![claimed.fence.claim]).await;
    let claimed = scene.claim_one().await;
    assert!(claimed.coordination.deadline_fired);
    scene.committed(&[claimed], next(Duration::ZERO)).await;
    assert!(!scene.snapshot(id).await.deadline_fired);
    assert!(!scene.claim_one().await.coordination.deadline_fired);
}

/// What is not due is left, and said.
pub async fn a_later_deadline_waits_and_is_said(store: Arc<dyn Store>) {
    // contract: SIG-4
    let scene = Scene::new(store).await;
    let never = scene.parked(&["a"], None).await;
    assert_eq!(
        scene.expire(10).await,
        idle(),
        "a wait without a timeout has no end"
    );
    let far = scene.parked(&["a"], Some(MAX_DURATION)).await;
    let in_a_year = Duration::from_secs(365 * 24 * 3600);
    assert!(scene.expire(10).await.next.is_some_and(|next| next > in_a_year));
    let near = scene.parked(&["a"], Some(HOUR)).await;
    let expired = scene.expire(10).await;
    assert_eq!((expired.instances, expired.more), (0, false));
    assert!(
        expired
            .next
            .is_some_and(|next| next > Duration::ZERO && next <= HOUR)
    );
    for (id, least, most) in [(far, in_a_year, MAX_DURATION), (near, Duration::ZERO, HOUR)] {
        let snapshot = scene.snapshot(id).await;
        assert_eq!(snapshot.status, Status::AwaitingSignal);
        assert!(
            snapshot
                .deadline_in
                .is_some_and(|left| left > least && left <= most)
        );
    }
    assert_eq!(scene.status(never).await, Status::AwaitingSignal);
}

/// The deadlines fire in their order, as many as asked for, until no more are due.
pub async fn deadlines_fire_in_their_order(store: Arc<dyn Store>) {
    // contract: SIG-4
    let scene = Scene::new(store).await;
    let mut parked = Vec::new();
    for _ in 0..3 {
        parked.push(scene.parked(&["a"], Some(Duration::ZERO)).await);
    }
    parked.push(scene.parked(&["a"], Some(HOUR)).await);
    let expired = scene.expire(2).await;
    assert_eq!((expired.instances, expired.more), (2, true));
    assert_eq!(expired.woken, default_queue(), "each queue is named once");
    let fired: Vec<bool> = snapshots_fired(&scene, &parked).await;
    assert_eq!(fired, [true, true, false, false]);
    let expired = scene.expire(2).await;
    assert_eq!((expired.instances, expired.more), (1, false));
    assert!(expired.next.is_some());
    assert_eq!(scene.expire(2).await.woken, []);
    assert_eq!(scene.claim(10).await.len(), 3);
}

async fn snapshots_fired(scene: &Scene, ids: &[InstanceId]) -> Vec<bool> {
    let snapshots = scene.snapshots(ids).await;
    snapshots
        .into_iter()
        .flatten()
        .map(|it| it.deadline_fired)
        .collect()
}

/// Who was woken has no deadline any more, even one that had come by then.
pub async fn a_wake_takes_the_deadline_away(store: Arc<dyn Store>) {
    // contract: SIG-2, SIG-4
    let scene = Scene::new(store).await;
    for timeout in [Duration::ZERO, HOUR] {
        let id = scene.parked(&["a"], Some(timeout)).await;
        scene.send(id, "a").await;
        assert_eq!(scene.expire(10).await, idle());
        let claimed = scene.claim_one().await;
        assert!(!claimed.coordination.deadline_fired);
        scene.committed(&[claimed], await_signals(&["b"], None)).await;
        assert_eq!(scene.expire(10).await, idle(), "the next wait has none");
        assert_eq!(scene.status(id).await, Status::AwaitingSignal);
    }
}

/// Who goes on at once has no deadline.
pub async fn a_wait_that_goes_on_at_once_has_no_deadline(store: Arc<dyn Store>) {
    // contract: SIG-3, SIG-4
    let scene = Scene::new(store).await;
    for wait in [
        await_signals(&["a"], Some(Duration::ZERO)),
        fan_out(Vec::new(), None, Some(Duration::ZERO)),
    ] {
        let id = scene.insert_plain(1).await[0];
        scene.send(id, "a").await;
        let claimed = scene.claim_one().await;
        scene.committed(&[claimed], wait).await;
        assert_eq!(scene.status(id).await, Status::Runnable);
        assert_eq!(scene.expire(10).await, idle());
        let claimed = scene.claim_one().await;
        assert!(!claimed.coordination.deadline_fired);
        scene.committed(&[claimed], done()).await;
    }
}

/// After a deadline the same wait may begin again, with a deadline of its own.
pub async fn a_wait_after_a_deadline_begins_anew(store: Arc<dyn Store>) {
    // contract: SIG-3, SIG-4
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], Some(Duration::ZERO)).await;
    assert_eq!(scene.expire(10).await.instances, 1);
    assert_eq!(scene.send(id, "a").await, [], "it waits no more");
    let claimed = scene.claim_one().await;
    assert!(claimed.coordination.deadline_fired, "whatever came since");
    assert_eq!(numbered(&claimed.coordination.inbox), expected(&[(1, "a")]));
    scene
        .committed(&[claimed], await_signals(&["a"], Some(Duration::ZERO)))
        .await;
    let snapshot = scene.snapshot(id).await;
    assert_eq!(
        snapshot.status,
        Status::AwaitingSignal,
        "the signal was given as awaited"
    );
    assert!(!snapshot.deadline_fired);
    assert_eq!(scene.expire(10).await.instances, 1);
}

/// A parent may stop waiting; it sees how far its children are, and those who end later wake nobody.
pub async fn a_deadline_ends_a_wait_for_children(store: Arc<dyn Store>) {
    // contract: SIG-4, CHILD-1, CHILD-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    let children = vec![child(), child()];
    scene
        .committed(&[claimed], fan_out(children, None, Some(Duration::ZERO)))
        .await;
    assert_eq!(scene.end_child(done()).await, []);
    assert_eq!(scene.snapshot(id).await.children_left, 1);
    let expired = scene.expire(10).await;
    assert_eq!((expired.instances, expired.woken), (1, default_queue().to_vec()));
    assert_eq!(scene.end_child(done()).await, [], "nobody waits for it");
    let claimed = scene.claim_one().await;
    assert!(claimed.coordination.deadline_fired);
    assert_eq!(claimed.coordination.children.len(), 2);
    scene.committed(&[claimed], await_signals(&["a"], None)).await;
    assert!(!scene.snapshot(id).await.deadline_fired);
}

/// The last child takes the deadline away.
pub async fn a_join_takes_the_deadline_away(store: Arc<dyn Store>) {
    // contract: SIG-4, CHILD-1
    let scene = Scene::new(store).await;
    for timeout in [Duration::ZERO, HOUR] {
        let id = scene.insert_plain(1).await[0];
        let claimed = scene.claim_one().await;
        scene
            .committed(&[claimed], fan_out(vec![child()], None, Some(timeout)))
            .await;
        assert!(scene.snapshot(id).await.deadline_in.is_some());
        assert_eq!(scene.end_child(done()).await, default_queue());
        assert_eq!(scene.expire(10).await, idle());
        let claimed = scene.claim_one().await;
        assert!(!claimed.coordination.deadline_fired);
        scene.committed(&[claimed], done()).await;
    }
}
