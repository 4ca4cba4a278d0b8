//! Collection: what is removed, when, and how much at once.

use std::sync::Arc;
use std::time::Duration;

use durable_core::Store;
use durable_core::store::{Operation, Retention};

use super::scene::{HOUR, KEEP_NOTHING, Scene, cancelled, done, failed, later, next};
use super::waiting::{cancel, child};

/// Done, failed and cancelled instances go each at their own age.
pub async fn each_status_is_kept_for_its_own_retention(store: Arc<dyn Store>) {
    // contract: OPS-3
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(3).await;
    for end in [done(), failed(), cancelled()] {
        let claimed = scene.claim(1).await;
        scene.commit(&claimed, end).await;
    }
    let kept = Retention {
        done: HOUR,
        failed: HOUR,
        cancelled: HOUR,
    };
    assert_eq!(scene.collect_all(kept, 10).await, 0);
    assert_eq!(scene.collect_all(Retention::default(), 10).await, 0);
    let without = [
        Retention {
            failed: Duration::ZERO,
            ..kept
        },
        Retention {
            done: Duration::ZERO,
            ..kept
        },
        Retention {
            cancelled: Duration::ZERO,
            ..kept
        },
    ];
    let left = [[true, false, true], [false, false, true], [false, false, false]];
    for (retention, left) in without.into_iter().zip(left) {
        assert_eq!(scene.collect_all(retention, 10).await, 1);
        let there: Vec<bool> = scene
            .snapshots(&inserted)
            .await
            .iter()
            .map(Option::is_some)
            .collect();
        assert_eq!(there, left);
    }
}

/// A round removes about as many as asked for; the last one knows that it is the last.
pub async fn collection_is_bounded_and_says_when_it_is_done(store: Arc<dyn Store>) {
    // contract: OPS-3
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(36).await;
    // Some in batches of ten, some one by one.
    for size in [10, 10, 10, 1, 1, 1, 1, 1, 1] {
        let claimed = scene.claim(size).await;
        scene.commit(&claimed, done()).await;
    }
    let first = scene.collect(KEEP_NOTHING, 10).await;
    assert!(first.more && (10..20).contains(&first.instances), "{first:?}");
    assert_eq!(first.instances + scene.collect_all(KEEP_NOTHING, 3).await, 36);
    assert!(scene.snapshots(&inserted).await.iter().all(Option::is_none));
    let none = scene.collect(KEEP_NOTHING, 10).await;
    assert_eq!((none.instances, none.more), (0, false));
    scene.insert_plain(10).await;
    let claimed = scene.claim(10).await;
    scene.commit(&claimed, done()).await;
    let exact = scene.collect(KEEP_NOTHING, 10).await;
    assert_eq!((exact.instances, exact.more), (10, false), "nothing is left");
}

/// Neither what waits, nor what runs, nor what comes back.
pub async fn what_is_not_terminal_is_never_collected(store: Arc<dyn Store>) {
    // contract: OPS-3
    let scene = Scene::new(store).await;
    let mut inserted = scene.insert_plain(3).await;
    let claimed = scene.claim(2).await;
    scene.commit(&claimed[..1], next(Duration::ZERO)).await;
    inserted.push(scene.insert_one(later()).await);
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 0);
    assert!(scene.snapshots(&inserted).await.iter().all(Option::is_some));
}

/// A child that has ended is kept as long as its parent is not terminal, and goes then.
pub async fn a_child_is_kept_for_its_unfinished_parent(store: Arc<dyn Store>) {
    // contract: CHILD-4
    let scene = Scene::new(store).await;
    let (parent, children) = scene
        .with_children(vec![child(), child(), child()], Some(1))
        .await;
    let unrelated = scene.insert_one(child()).await;
    let all_but_one = scene.claim_children(2).await;
    scene.committed(&all_but_one, done()).await;
    scene.operate(vec![unrelated.into()], cancel("because")).await;
    assert_eq!(
        scene.collect_all(KEEP_NOTHING, 10).await,
        1,
        "only what is nobody's child"
    );
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.coordination.children.len(), 3);
    scene.committed(&[claimed], next(Duration::ZERO)).await;
    assert_eq!(
        scene.collect_all(KEEP_NOTHING, 10).await,
        0,
        "it does not look at them any more, but might"
    );
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], failed()).await;
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 3);
    let there = scene
        .snapshots(&[parent, children[0], children[1], children[2]])
        .await;
    let there: Vec<bool> = there.iter().map(Option::is_some).collect();
    assert_eq!(there, [false, false, false, true]);
    scene.end_child(done()).await;
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 1, "its parent is gone");
}

/// Children that are kept stand in nobody's way, also when a round is small.
pub async fn kept_children_do_not_hold_up_the_collector(store: Arc<dyn Store>) {
    // contract: CHILD-4, OPS-3
    let scene = Scene::new(store).await;
    scene.with_children(vec![child(); 6], None).await;
    let claimed = scene.claim_children(5).await;
    for one in &claimed {
        scene.committed(std::slice::from_ref(one), done()).await;
    }
    scene.insert_plain(3).await;
    for one in &scene.claim(3).await {
        scene.committed(std::slice::from_ref(one), done()).await;
    }
    assert_eq!(scene.collect_all(KEEP_NOTHING, 2).await, 3);
}

/// One that was restarted is not collected for what it was before.
pub async fn what_was_restarted_is_not_collected(store: Arc<dyn Store>) {
    // contract: OPS-3, CANCEL-3
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], failed()).await;
    scene.operate(vec![id.into()], Operation::Restart).await;
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 0);
    let claimed = scene.claim_one().await;
    scene.committed(&[claimed], failed()).await;
    let only_done = Retention {
        done: Duration::ZERO,
        ..Retention::default()
    };
    assert_eq!(scene.collect_all(only_done, 10).await, 0);
    assert_eq!(scene.collect_all(KEEP_NOTHING, 10).await, 1);
}
