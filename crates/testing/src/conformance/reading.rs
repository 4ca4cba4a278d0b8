//! Reading, and the times that a store must bear.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use durable_core::store::{ClaimRequest, Eligible, Inserted, NewInstance, Retention, Settlement, Transition};
use durable_core::{InstanceId, MAX_DURATION, Scope, Status, Store};

use super::scene::{
    HOUR, KEEP_NOTHING, Scene, alive, done, entry, failure, ids, json, key, keyed, later, machine, next,
    outcome, queue, value,
};
use super::waiting::{Statuses, child};

/// One answer for each id, also for one that is asked twice, was removed, or never was.
pub async fn snapshots_stand_in_the_callers_order(store: Arc<dyn Store>) {
    // contract: OPS-3
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(3).await;
    let claimed = scene.claim(1).await;
    scene.commit(&claimed, done()).await;
    scene.collect_all(KEEP_NOTHING, 10).await;
    let never = InstanceId::new(inserted[2].get() + 1000);
    let asked = [inserted[2], never, inserted[0], inserted[1], inserted[2]];
    let answered: Vec<_> = scene
        .snapshots(&asked)
        .await
        .into_iter()
        .map(|read| read.map(|snapshot| snapshot.id))
        .collect();
    let expected = [
        Some(inserted[2]),
        None,
        None,
        Some(inserted[1]),
        Some(inserted[2]),
    ];
    assert_eq!(answered, expected);
    assert_eq!(scene.snapshots(&[]).await, []);
}

/// The business identity leads to the instance while it is held, and to nothing otherwise.
pub async fn find_names_the_holder_of_a_key(store: Arc<dyn Store>) {
    // contract: ID-1
    let scene = Scene::new(store).await;
    assert_eq!(scene.find("a").await, None);
    let first = scene.insert_one(keyed("a", Scope::UNTIL_TERMINAL)).await;
    let other = scene.insert_one(keyed("b", Scope::UNTIL_TERMINAL)).await;
    assert_eq!(
        (scene.find("a").await, scene.find("b").await),
        (Some(first), Some(other))
    );
    assert_eq!(scene.snapshot(other).await.correlation_key, Some(key("b")));
    let claimed = scene.claim(1).await;
    scene.commit(&claimed, done()).await;
    assert_eq!(
        (scene.find("a").await, scene.find("b").await),
        (None, Some(other))
    );
    let second = scene.insert_one(keyed("a", Scope::UNTIL_TERMINAL)).await;
    assert_eq!(scene.find("a").await, Some(second));
}

/// Only what waits, of this queue and these machines; it is then claimed by priority and insert.
pub async fn make_due_moves_only_what_it_names(store: Arc<dyn Store>) {
    // contract: CLAIM-1
    let scene = Scene::new(store).await;
    let inserted = scene
        .insert(vec![
            later(),
            NewInstance {
                priority: -1,
                eligible: Eligible::In(HOUR * 2),
                ..entry()
            },
            NewInstance {
                queue: queue("other"),
                ..later()
            },
            NewInstance {
                machine: machine("other", 1),
                ..later()
            },
            NewInstance {
                machine: machine("plain", 2),
                ..later()
            },
            entry(),
        ])
        .await;
    let inserted: Vec<_> = inserted.into_iter().map(Inserted::id).collect();
    let machines: Arc<[_]> = Arc::new([machine("plain", 1), machine("plain", 2)]);
    let make_due = || scene.store.make_due(queue("default"), Arc::clone(&machines));
    assert_eq!(make_due().await.expect("made due"), 3);
    assert_eq!(make_due().await.expect("made due"), 0);
    assert_eq!(scene.snapshot(inserted[1]).await.due_in, Duration::ZERO);
    for left in [inserted[2], inserted[3]] {
        assert!(scene.snapshot(left).await.due_in > HOUR / 2);
    }
    let request = ClaimRequest {
        machines,
        ..scene.ask(10)
    };
    let claimed = scene.answer(request).await.instances;
    let order = [inserted[1], inserted[5], inserted[0], inserted[4]];
    assert_eq!(ids(&claimed), order);
    scene.commit(&claimed[..1], next(HOUR)).await;
    let machines: Arc<[_]> = Arc::new([machine("plain", 1)]);
    let moved = scene.store.make_due(queue("default"), machines).await;
    assert_eq!(
        moved.expect("made due"),
        1,
        "what executes or is terminal is left"
    );
}

/// A delay, an instant, a lease and a retention may each be a hundred years.
pub async fn durations_reach_a_hundred_years(store: Arc<dyn Store>) {
    // contract: OUT-5
    let scene = Scene::new(store).await;
    let far = |due: Duration| {
        assert!(due > MAX_DURATION - HOUR && due <= MAX_DURATION + HOUR, "{due:?}");
    };
    let at = |eligible| NewInstance { eligible, ..entry() };
    let inserted = scene
        .insert(vec![
            at(Eligible::In(MAX_DURATION)),
            at(Eligible::At(SystemTime::now() + MAX_DURATION)),
        ])
        .await;
    for one in &inserted {
        far(scene.snapshot(one.id()).await.due_in);
    }
    far(scene.answer(scene.ask(10)).await.next_due.expect("two wait"));
    let worker = scene.register(MAX_DURATION, None).await;
    assert_eq!(scene.beat(worker, MAX_DURATION).await, alive(&[]));
    let ids = scene.insert_plain(3).await;
    let claimed = scene.claim_by(worker, 3).await;
    let again = Transition::Retry {
        state: None,
        delay: MAX_DURATION,
        failure: None,
    };
    let outcomes = vec![
        outcome(&claimed[0], next(MAX_DURATION)),
        outcome(&claimed[1], again),
        outcome(&claimed[2], done()),
    ];
    scene.commit_all(worker, outcomes, Vec::new()).await;
    far(scene.snapshot(ids[0]).await.due_in);
    far(scene.snapshot(ids[1]).await.due_in);
    assert_eq!(scene.reap_all(10).await.workers, 0);
    let kept = Retention {
        done: MAX_DURATION,
        failed: MAX_DURATION,
        cancelled: MAX_DURATION,
    };
    assert_eq!(scene.collect_all(kept, 10).await, 0);
    let machines = scene.ask(0).machines;
    let moved = scene.store.make_due(queue("default"), machines).await;
    assert_eq!(moved.expect("made due"), 4);
    let claimed = scene.claim(10).await;
    assert_eq!(claimed.len(), 4);
    scene.commit(&claimed, done()).await;
    assert_eq!(scene.snapshot(ids[0]).await.status, Status::Done);
}

/// Who waits for an instance learns whether it is at work, parked, or how it ended.
pub async fn settlements_say_how_far_an_instance_is(store: Arc<dyn Store>) {
    // contract: WAIT-1
    let scene = Scene::new(store).await;
    let all = Statuses::of(&scene).await;
    let never = InstanceId::new(all.cancelled.get() + 1000);
    let asked = vec![
        all.done,
        all.failed,
        never,
        all.cancelled,
        all.awaiting_signal,
        all.postponed,
        all.executing,
        all.awaiting_children,
        all.done,
    ];
    let mut settled = scene.store.settlements(asked).await.expect("read");
    let ends: Vec<Option<Settlement>> = settled.drain(..4).collect();
    let is_true =
        |end: &Option<Settlement>| matches!(end, Some(Settlement::Done(result)) if value(result) == true);
    assert!(is_true(&ends[0]), "{ends:?}");
    assert_eq!(ends[1], Some(Settlement::Failed(failure("failed"))));
    assert_eq!(ends[2], None);
    assert!(matches!(&ends[3], Some(Settlement::Cancelled(why)) if why.message == "cancelled"));
    let (busy, parked) = (Some(Settlement::Busy), Some(Settlement::Parked));
    assert_eq!(settled[..4], [parked.clone(), busy.clone(), busy, parked]);
    assert!(is_true(&settled[4]), "{settled:?}");
    assert_eq!(settled.len(), 5);
    assert_eq!(scene.store.settlements(Vec::new()).await.expect("read"), []);
}

/// A result of null is a result.
pub async fn a_result_may_be_null(store: Arc<dyn Store>) {
    // contract: WAIT-1, CHILD-2
    let scene = Scene::new(store).await;
    let null = Transition::Done { result: json("null") };
    let (_, children) = scene.with_children(vec![child()], None).await;
    scene.end_child(null).await;
    let settled = scene.store.settlements(children.clone()).await.expect("read");
    assert!(matches!(&settled[..], [Some(Settlement::Done(result))] if value(result).is_null()));
    let claimed = scene.claim_one().await;
    let seen = &claimed.coordination.children[0];
    assert!(
        seen.result.as_ref().is_some_and(|result| value(result).is_null()),
        "{seen:?}"
    );
}
