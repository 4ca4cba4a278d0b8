//! Concurrency keys without a gate: one at a time, and in order.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    Commit, CommitRequest, Limits, NewInstance, NewSignal, Operation, Target, Transition,
};
use durable_core::{Json, OperationFate, SignalName, Status, Store};

use super::scene::{
    HOUR, Scene, cancelled, done, entry, failed, failure, ids, json, limited, limits, next, outcome, retry,
    with_limits,
};

/// Of those with one key one executes, whichever worker asks; it is the lock, until its outcome is committed.
pub async fn one_at_a_time_holds_over_all_workers(store: Arc<dyn Store>) {
    // contract: LIM-1
    let scene = Scene::new(store).await;
    let other = scene.register(HOUR, None).await;
    let same = scene.insert_limited(3, "k").await;
    let free = scene.insert_one(with_limits("other", None)).await;
    let plain = scene.insert_one(entry()).await;
    let claimed = scene.claim(10).await;
    assert_eq!(ids(&claimed), [same[0], free, plain]);
    assert!(claimed.iter().all(|one| !one.gated));
    assert_eq!(claimed[0].limits, limits(Some("k"), None));
    assert_eq!(claimed[2].limits, Limits::default());
    let standing = scene.key("k").await;
    assert_eq!((standing.waiting, standing.holder), (2, Some(same[0])));
    assert_eq!(ids(&scene.claim_by(other, 10).await), []);
    scene.bring_back("k", 5).await;
    assert_eq!(ids(&scene.claim_by(other, 10).await), [], "the key is held");

    assert_eq!(scene.commit_freeing(&claimed[0], done()).await, ["k"]);
    assert_eq!(
        ids(&scene.claim_by(other, 10).await),
        [],
        "they wait to be brought back"
    );
    assert_eq!(
        scene.bring_back("k", 5).await,
        1,
        "there is room for one, whatever is said"
    );
    let second = scene.claim_by(other, 10).await;
    assert_eq!(ids(&second), [same[1]]);
    assert_eq!(scene.key("k").await.holder, Some(same[1]));
}

/// However the execution ends, the key is free, and who waits is named.
pub async fn every_end_of_an_execution_frees_the_key(store: Arc<dyn Store>) {
    // contract: LIM-1, CANCEL-2
    let scene = Scene::new(store).await;
    let awaits = Transition::Await {
        step: "second".to_owned(),
        state: json("1"),
        signals: vec![SignalName::new("go").expect("a name")],
        timeout: None,
    };
    let spawns = Transition::ScheduleChildren {
        step: "second".to_owned(),
        state: json("1"),
        children: vec![NewInstance {
            queue: super::scene::queue("children"),
            ..entry()
        }],
        needed: None,
        timeout: None,
    };
    let ends = [
        next(HOUR),
        Transition::Retry {
            state: None,
            delay: HOUR,
            failure: None,
        },
        awaits,
        spawns,
        done(),
        failed(),
        cancelled(),
    ];
    for end in ends {
        let same = scene.insert_limited(2, "k").await;
        let claimed = scene.claim(10).await;
        assert_eq!(ids(&claimed), [same[0]], "before {end:?}");
        assert_eq!(
            scene.commit_freeing(&claimed[0], end.clone()).await,
            ["k"],
            "{end:?}"
        );
        assert_eq!(scene.key("k").await.holder, None, "{end:?}");
        assert_eq!(scene.bring_back("k", 1).await, 1);
        let claimed = scene.claim(10).await;
        assert_eq!(ids(&claimed), [same[1]], "after {end:?}");
        assert!(
            scene.commit_freeing(&claimed[0], done()).await.is_empty(),
            "nobody waits"
        );
    }
}

/// What is given back or taken back frees its key too.
pub async fn what_comes_back_frees_the_key(store: Arc<dyn Store>) {
    // contract: LIM-1, CLAIM-6, LEASE-2
    let scene = Scene::new(store).await;
    let same = scene.insert_limited(2, "k").await;
    let claimed = scene.claim(10).await;
    let number = claimed[0].fence.claim;
    let freed = scene
        .store
        .release(scene.worker, vec![number])
        .await
        .expect("released");
    assert_eq!(freed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["k"]);
    assert_eq!(scene.bring_back("k", 1).await, 1);
    let doomed = scene.register(Duration::ZERO, None).await;
    let dead = scene.register(HOUR, None).await;
    let _ = doomed;
    // The one that was given back stands before the one that was brought back.
    let claimed = scene.claim_by(dead, 1).await;
    assert_eq!(ids(&claimed), [same[0]]);
    scene.declare_dead(dead).await;
    let reaped = scene.reap(10).await;
    assert_eq!(reaped.instances, 1);
    assert_eq!(scene.key("k").await.holder, None);
    let claimed = scene.claim(10).await;
    assert_eq!(ids(&claimed), [same[0]], "in the order of the queue");
}

/// An outcome that runs ahead with its key keeps it; one that gives it up, or takes another, frees it once.
pub async fn running_ahead_keeps_the_key_that_is_kept(store: Arc<dyn Store>) {
    // contract: RUN-2, LIM-1
    let scene = Scene::new(store).await;
    let same = scene.insert_limited(2, "k").await;
    let claimed = scene.claim(10).await;
    let ahead = Transition::Ahead {
        step: "second".to_owned(),
        state: json("1"),
    };
    let number = scene.ask(0).number;
    let commit = |limits: Option<Limits>, fence| Commit {
        limits,
        fence,
        ..outcome(&claimed[0], ahead.clone())
    };
    let request = |commit, number| CommitRequest {
        ahead: Some(number),
        ..CommitRequest::new(scene.worker, vec![commit], Vec::new())
    };
    let first = scene
        .store
        .commit(request(commit(None, claimed[0].fence), number))
        .await;
    assert_eq!(first.expect("committed").freed, []);
    assert_eq!(scene.key("k").await.holder, Some(same[0]));
    let fence = durable_core::Fence {
        claim: number,
        seq: claimed[0].fence.seq + 1,
    };
    let number = scene.ask(0).number;
    let second = scene
        .store
        .commit(request(commit(Some(Limits::default()), fence), number))
        .await;
    let freed = second.expect("committed").freed;
    assert_eq!(freed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["k"]);
    assert_eq!(scene.key("k").await.holder, None);
    assert_eq!(scene.snapshot(same[0]).await.status, Status::Executing);
}

/// Those who wait come back in the order of the queue, and a newcomer queues up behind them.
pub async fn those_who_wait_come_back_in_order(store: Arc<dyn Store>) {
    // contract: LIM-7
    let scene = Scene::new(store).await;
    let of = |priority| NewInstance {
        priority,
        ..limited("k")
    };
    let first = scene.insert_one(of(0)).await;
    let claimed = scene.claim(1).await;
    assert_eq!(ids(&claimed), [first]);
    let inserted = scene.insert(vec![of(7), of(5), of(5), of(9)]).await;
    let waiting: Vec<_> = inserted.iter().map(|one| one.id()).collect();
    assert_eq!(ids(&scene.claim(10).await), []);
    scene.commit_freeing(&claimed[0], done()).await;
    let newcomer = scene.insert_one(of(1)).await;
    assert_eq!(
        ids(&scene.claim(10).await),
        [],
        "it comes behind those who wait, and orders itself in"
    );
    for expected in [newcomer, waiting[1], waiting[2], waiting[0], waiting[3]] {
        assert_eq!(scene.snapshot(expected).await.status, Status::Runnable);
        assert_eq!(scene.bring_back("k", 1).await, 1);
        let claimed = scene.claim(10).await;
        assert_eq!(ids(&claimed), [expected]);
        scene.commit_freeing(&claimed[0], done()).await;
    }
    assert_eq!(scene.bring_back("k", 1).await, 0);
}

/// Work without limits is claimed past a backlog that waits for one; what was set aside is said.
pub async fn other_work_does_not_wait_for_a_backlog(store: Arc<dyn Store>) {
    // contract: LIM-7, CLAIM-2
    let scene = Scene::new(store).await;
    let held = scene.insert_one(limited("k")).await;
    assert_eq!(ids(&scene.claim(1).await), [held]);
    scene.insert_limited(50, "k").await;
    let plain = scene.insert_plain(5).await;
    let claimed = scene.answer(scene.ask(5)).await;
    assert_eq!(ids(&claimed.instances), plain, "within the first batch");
    assert_eq!(
        (claimed.set_aside, claimed.next_due),
        (5, Some(Duration::ZERO)),
        "and more to look at"
    );
    let mut set_aside = claimed.set_aside;
    while set_aside < 50 {
        let claimed = scene.answer(scene.ask(5)).await;
        assert_eq!(ids(&claimed.instances), []);
        assert!(claimed.set_aside > 0);
        set_aside += claimed.set_aside;
    }
    let claimed = scene.answer(scene.ask(5)).await;
    assert_eq!((claimed.set_aside, claimed.next_due), (0, None), "each once");
    assert_eq!(scene.key("k").await.waiting, 50);
}

/// A key is kept over transitions until an outcome says otherwise; what has limits or not may change at each step.
pub async fn an_outcome_takes_changes_and_gives_up_a_key(store: Arc<dyn Store>) {
    // contract: LIM-1, LIM-3
    let scene = Scene::new(store).await;
    let id = scene.insert_one(limited("k")).await;
    let steps = [
        (retry(), None, limits(Some("k"), None)),
        (next(Duration::ZERO), None, limits(Some("k"), None)),
        (
            next(Duration::ZERO),
            Some(limits(Some("l"), None)),
            limits(Some("l"), None),
        ),
        (next(Duration::ZERO), Some(Limits::default()), Limits::default()),
        (
            next(Duration::ZERO),
            Some(limits(Some("k"), None)),
            limits(Some("k"), None),
        ),
    ];
    for (transition, change, expected) in steps {
        let claimed = scene.claim(10).await;
        assert_eq!(ids(&claimed), [id]);
        let commit = Commit {
            limits: change,
            ..outcome(&claimed[0], transition)
        };
        scene.commit_all(scene.worker, vec![commit], Vec::new()).await;
        assert_eq!(scene.snapshot(id).await.limits, expected);
    }
    let claimed = scene.claim(10).await;
    assert_eq!(claimed[0].limits, limits(Some("k"), None));
    assert_eq!(scene.key("k").await.holder, Some(id));
    assert_eq!(scene.key("l").await.holder, None);
}

/// One that waits for a key is runnable, and says what for; it can be cancelled, and nothing waits then.
pub async fn one_that_waits_can_be_cancelled(store: Arc<dyn Store>) {
    // contract: CANCEL-1, CANCEL-2, LIM-7
    let scene = Scene::new(store).await;
    let same = scene.insert_limited(3, "k").await;
    let claimed = scene.claim(10).await;
    let snapshot = scene.snapshot(same[1]).await;
    assert_eq!(snapshot.status, Status::Runnable);
    assert_eq!(snapshot.waits_for, Some(durable_core::LimitKind::Gate));
    assert_eq!(scene.snapshot(same[0]).await.waits_for, None);
    let cancel = Operation::Cancel {
        failure: failure("no more"),
    };
    let operated = scene
        .store
        .operate(vec![Target::Id(same[1])], cancel)
        .await
        .expect("answered");
    assert_eq!(operated.fates, [OperationFate::Applied(same[1])]);
    assert_eq!(scene.snapshot(same[1]).await.status, Status::Cancelled);
    assert_eq!(scene.key("k").await.waiting, 1);
    assert_eq!(scene.commit_freeing(&claimed[0], done()).await, ["k"]);
    assert_eq!(scene.bring_back("k", 1).await, 1);
    assert_eq!(ids(&scene.claim(10).await), [same[2]]);
}

/// One that must end cancelled needs no key for that.
pub async fn a_requested_cancellation_needs_no_key(store: Arc<dyn Store>) {
    // contract: CANCEL-1, LIM-1
    let scene = Scene::new(store).await;
    let dead = scene.register(HOUR, None).await;
    let same = scene.insert_limited(2, "k").await;
    assert_eq!(ids(&scene.claim_by(dead, 1).await), [same[0]]);
    let cancel = Operation::Cancel {
        failure: failure("no more"),
    };
    scene
        .store
        .operate(vec![Target::Id(same[0])], cancel)
        .await
        .expect("answered");
    scene.declare_dead(dead).await;
    scene.reap_all(10).await;
    let claimed = scene.claim(10).await;
    assert_eq!(
        ids(&claimed),
        same,
        "the first one only ends, the second one has the key"
    );
    assert!(claimed[0].coordination.cancel_requested);
    assert_eq!(scene.key("k").await.holder, Some(same[1]));
    scene.commit(&claimed[..1], Transition::cancelled()).await;
    assert_eq!(scene.key("k").await.holder, Some(same[1]), "and keeps it");
}

/// Children, woken and scheduled instances carry their key.
pub async fn a_key_holds_wherever_an_instance_comes_from(store: Arc<dyn Store>) {
    // contract: LIM-1, CHILD-1, SIG-2
    let scene = Scene::new(store).await;
    let parent = scene.insert_one(entry()).await;
    let claimed = scene.claim(1).await;
    let spawn = Transition::ScheduleChildren {
        step: "second".to_owned(),
        state: json("1"),
        children: vec![limited("k"), limited("k")],
        needed: None,
        timeout: None,
    };
    scene.commit(&claimed, spawn).await;
    let child = scene.claim(10).await;
    assert_eq!(child.len(), 1, "one of the two");
    assert_eq!(child[0].coordination.parent, Some(parent));
    let wait = Transition::Await {
        step: "second".to_owned(),
        state: json("1"),
        signals: vec![SignalName::new("go").expect("a name")],
        timeout: None,
    };
    assert_eq!(scene.commit_freeing(&child[0], wait).await, ["k"]);
    assert_eq!(scene.bring_back("k", 1).await, 1);
    let second = scene.claim(10).await;
    let signal = NewSignal {
        target: Target::Id(child[0].id),
        name: SignalName::new("go").expect("a name"),
        payload: Json::from_store("1".to_owned()),
        deduplication_key: None,
    };
    scene.store.deliver(vec![signal]).await.expect("delivered");
    assert_eq!(ids(&scene.claim(10).await), [], "woken, but its key is held");
    scene.commit_freeing(&second[0], done()).await;
    assert_eq!(scene.bring_back("k", 1).await, 1);
    assert_eq!(ids(&scene.claim(10).await), [child[0].id]);
}

/// Keys that nobody needs are forgotten, and no others.
pub async fn only_idle_keys_are_forgotten(store: Arc<dyn Store>) {
    // contract: LIM-11
    let scene = Scene::new(store).await;
    scene.insert_limited(2, "busy").await;
    scene.insert_one(limited("idle")).await;
    let claimed = scene.claim(10).await;
    let idle = claimed
        .iter()
        .find(|one| one.limits == limits(Some("idle"), None))
        .expect("claimed");
    scene.commit(std::slice::from_ref(idle), done()).await;
    scene.pause("paused", Some(HOUR)).await;
    let mut forgotten = 0;
    for _ in 0..5 {
        forgotten += scene.store.forget_keys(2).await.expect("answered");
    }
    assert_eq!(forgotten, 1);
    assert_eq!(scene.key("busy").await.waiting, 1);
    assert!(scene.key("paused").await.paused_for.is_some());
}
