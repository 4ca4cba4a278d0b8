//! Commits: what each outcome writes, and that nothing else commits.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{CommitFate, Inserted, Resolution, Transition};
use durable_core::{ClaimNumber, Fence, Scope, Status, Store};

use super::scene::{
    HOUR, Scene, alive, assert_refused, cancelled, done, entry, failed, failure, ids, json, keyed, machine,
    next, outcome, queue, retry, value,
};

const COMMITTED: [CommitFate; 1] = [CommitFate::Committed];
const STALE: [CommitFate; 1] = [CommitFate::Stale];

/// Another step, with its own state; attempt, crashes and failure begin anew.
pub async fn next_begins_another_step(store: Arc<dyn Store>) {
    // contract: FSM-3, CORE-1
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim(1).await;
    let again = Transition::Retry {
        state: None,
        delay: Duration::ZERO,
        failure: Some(failure("a fault")),
    };
    assert_eq!(scene.commit(&claimed, again).await, COMMITTED);
    let dead = scene.register(HOUR, None).await;
    scene.claim_by(dead, 1).await;
    scene.declare_dead(dead).await;
    scene.reap_all(10).await;
    assert_eq!(scene.standing(id).await, (Status::Runnable, 2, 1));
    let claimed = scene.claim(1).await;
    assert_eq!(scene.commit(&claimed, next(Duration::ZERO)).await, COMMITTED);
    let snapshot = scene.snapshot(id).await;
    assert_eq!(snapshot.status, Status::Runnable);
    assert_eq!((snapshot.attempt, snapshot.crashes), (0, 0));
    assert_eq!(
        (snapshot.step.as_str(), value(&snapshot.state)),
        ("second", 1.into())
    );
    assert_eq!((snapshot.failure, snapshot.result), (None, None));
    assert_eq!(snapshot.due_in, Duration::ZERO);
    assert_eq!(
        (snapshot.machine, snapshot.queue),
        (machine("plain", 1), queue("default"))
    );
}

/// The same step, one attempt on, with why; the last failure is the one that is kept.
pub async fn retry_counts_an_attempt(store: Arc<dyn Store>) {
    // contract: FSM-3
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    for (attempt, failure) in [
        (1, Some(failure("a fault"))),
        (2, Some(failure("another"))),
        (3, None),
    ] {
        let again = Transition::Retry {
            state: Some(json(&attempt.to_string())),
            delay: Duration::ZERO,
            failure: failure.clone(),
        };
        let claimed = scene.claim(1).await;
        assert_eq!(scene.commit(&claimed, again).await, COMMITTED);
        let snapshot = scene.snapshot(id).await;
        assert_eq!(
            (snapshot.status, snapshot.step.as_str()),
            (Status::Runnable, "first")
        );
        assert_eq!((snapshot.attempt, snapshot.crashes), (attempt, 0));
        assert_eq!(
            (value(&snapshot.state), snapshot.failure),
            (attempt.into(), failure)
        );
    }
}

/// A step that failed before it could say anything about its state changes none.
pub async fn retry_without_a_state_keeps_the_stored_one(store: Arc<dyn Store>) {
    // contract: FSM-4
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim(1).await;
    scene.commit(&claimed, next(Duration::ZERO)).await;
    let claimed = scene.claim(1).await;
    assert_eq!(scene.commit(&claimed, retry()).await, COMMITTED);
    let snapshot = scene.snapshot(id).await;
    assert_eq!(
        (snapshot.step.as_str(), value(&snapshot.state)),
        ("second", 1.into())
    );
    assert_eq!((snapshot.attempt, snapshot.failure), (1, None));
}

/// As if it had not been claimed: step, state, counts, failure and place in the order.
pub async fn give_back_changes_nothing(store: Arc<dyn Store>) {
    // contract: OPS-2, CLAIM-1
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim(1).await;
    let again = Transition::Retry {
        state: Some(json("7")),
        delay: Duration::ZERO,
        failure: Some(failure("a fault")),
    };
    scene.commit(&claimed, again).await;
    let before = scene.snapshot(id).await;
    let claimed = scene.claim(1).await;
    let young = scene.insert_plain(1).await[0];
    assert_eq!(scene.commit(&claimed, Transition::GiveBack).await, COMMITTED);
    assert_eq!(scene.snapshot(id).await, before);
    assert_eq!(ids(&scene.claim(10).await), [id, young]);
}

/// Done keeps its result, failed and cancelled keep why, and all keep step and state.
pub async fn each_end_writes_its_own(store: Arc<dyn Store>) {
    // contract: FSM-3
    let scene = Scene::new(store).await;
    for (end, status, result, why) in [
        (done(), Status::Done, Some(true.into()), None),
        (failed(), Status::Failed, None, Some("failed")),
        (cancelled(), Status::Cancelled, None, Some("cancelled")),
    ] {
        let id = scene.insert_plain(1).await[0];
        let again = Transition::Retry {
            state: Some(json("[1]")),
            delay: Duration::ZERO,
            failure: Some(failure("before")),
        };
        let claimed = scene.claim(1).await;
        scene.commit(&claimed, again).await;
        let claimed = scene.claim(1).await;
        assert_eq!(scene.commit(&claimed, end).await, COMMITTED);
        let snapshot = scene.snapshot(id).await;
        assert_eq!(snapshot.status, status);
        assert_eq!(snapshot.result.as_ref().map(value), result);
        assert_eq!(snapshot.failure.map(|failure| failure.message).as_deref(), why);
        assert_eq!(
            (snapshot.step.as_str(), value(&snapshot.state)),
            ("first", serde_json::json!([1]))
        );
        assert_eq!(snapshot.attempt, 1);
        assert_eq!(
            scene.claim(10).await.len(),
            0,
            "what is terminal never runs again"
        );
    }
}

/// Next and retry may wait.
pub async fn a_delay_postpones(store: Arc<dyn Store>) {
    // contract: FSM-3, CLAIM-1
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(2).await;
    let claimed = scene.claim(2).await;
    let again = Transition::Retry {
        state: None,
        delay: HOUR,
        failure: None,
    };
    let outcomes = vec![outcome(&claimed[0], next(HOUR)), outcome(&claimed[1], again)];
    scene.commit_all(scene.worker, outcomes, Vec::new()).await;
    let claimed = scene.answer(scene.ask(10)).await;
    assert_eq!(claimed.instances.len(), 0);
    let due = claimed.next_due.expect("two wait");
    assert!(due > HOUR / 2 && due <= HOUR, "{due:?}");
    for id in inserted {
        let snapshot = scene.snapshot(id).await;
        assert_eq!(snapshot.status, Status::Runnable);
        assert!(snapshot.due_in > HOUR / 2 && snapshot.due_in <= HOUR);
    }
}

/// Neither an older fencing number, nor another claim, nor another worker commits.
pub async fn only_the_fence_of_an_open_claim_commits(store: Arc<dyn Store>) {
    // contract: CLAIM-4, CORE-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let first = scene.claim(1).await;
    scene.commit(&first, Transition::GiveBack).await;
    let second = scene.claim(1).await;
    assert_ne!(first[0].fence, second[0].fence);
    assert_eq!(scene.commit(&first, done()).await, STALE, "of an earlier claim");
    let (old, new) = (first[0].fence, second[0].fence);
    for (what, fence) in [
        (
            "an older number in the claim that stands",
            Fence { seq: old.seq, ..new },
        ),
        (
            "the number in a claim that has ended",
            Fence { seq: new.seq, ..old },
        ),
        (
            "a claim that never was",
            Fence {
                claim: ClaimNumber::new(99),
                ..new
            },
        ),
    ] {
        let mut forged = second.clone();
        forged[0].fence = fence;
        if fence.claim == old.claim {
            // Still open, as nobody closed it; once closed it must not help either.
            scene.commit_all(scene.worker, Vec::new(), vec![old.claim]).await;
        }
        assert_eq!(scene.commit(&forged, done()).await, STALE, "{what}");
    }
    let other = scene.register(HOUR, None).await;
    let outcomes = vec![outcome(&second[0], done())];
    assert_eq!(scene.commit_all(other, outcomes, Vec::new()).await, STALE);
    assert_eq!(scene.standing(id).await, (Status::Executing, 0, 0));
    assert_eq!(scene.commit(&second, done()).await, COMMITTED);
}

/// Whether in a later commit or in the same one: the first outcome stands, the second changes nothing.
pub async fn a_second_outcome_of_one_instance_is_stale(store: Arc<dyn Store>) {
    // contract: CLAIM-4
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(20).await;
    let claimed = scene.claim(20).await;
    let twice = claimed.iter().flat_map(|one| {
        [
            outcome(one, done()),
            outcome(one, next(Duration::ZERO)),
            outcome(one, failed()),
        ]
    });
    let fates = scene.commit_all(scene.worker, twice.collect(), Vec::new()).await;
    for fates in fates.chunks(3) {
        assert_eq!(
            fates,
            [CommitFate::Committed, CommitFate::Stale, CommitFate::Stale]
        );
    }
    assert_eq!(scene.commit(&claimed, failed()).await, [CommitFate::Stale; 20]);
    for id in inserted {
        let snapshot = scene.snapshot(id).await;
        assert_eq!((snapshot.status, snapshot.step.as_str()), (Status::Done, "first"));
    }
    assert_eq!(scene.claim(10).await.len(), 0);
}

/// A group commit joins claims; what is stale among them stays alone.
pub async fn outcomes_of_several_claims_are_answered_in_the_callers_order(store: Arc<dyn Store>) {
    // contract: OUT-1, CLAIM-4
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(4).await;
    let (first, second) = (scene.claim(2).await, scene.claim(2).await);
    scene.commit(&first[1..], failed()).await;
    let outcomes = vec![
        outcome(&second[1], done()),
        outcome(&first[1], done()),
        outcome(&first[0], done()),
        outcome(&second[0], next(Duration::ZERO)),
    ];
    let fates = scene.commit_all(scene.worker, outcomes, Vec::new()).await;
    let (yes, no) = (CommitFate::Committed, CommitFate::Stale);
    assert_eq!(fates, [yes, no, yes, yes]);
    let statuses = [Status::Done, Status::Failed, Status::Runnable, Status::Done];
    for (id, status) in inserted.into_iter().zip(statuses) {
        assert_eq!(scene.snapshot(id).await.status, status);
    }
}

/// Nothing to commit and nothing to close is answered all the same, also to a worker that never was.
pub async fn an_empty_commit_does_nothing(store: Arc<dyn Store>) {
    // contract: OUT-1
    let scene = Scene::new(store).await;
    scene.insert_plain(1).await;
    let claimed = scene.claim(1).await;
    assert_eq!(scene.commit_all(scene.worker, Vec::new(), Vec::new()).await, []);
    let unknown = vec![ClaimNumber::new(99)];
    assert_eq!(scene.commit_all(scene.worker, Vec::new(), unknown).await, []);
    assert_eq!(scene.commit(&claimed, done()).await, COMMITTED);
}

/// A claim of which nothing is left can be closed, with its last outcomes or later.
pub async fn a_closed_claim_is_forgotten(store: Arc<dyn Store>) {
    // contract: CLAIM-4, CLAIM-6
    let scene = Scene::new(store).await;
    scene.insert_plain(2).await;
    let (first, second) = (scene.claim(1).await, scene.claim(1).await);
    let numbers = [first[0].fence.claim, second[0].fence.claim];
    scene.commit(&first, next(Duration::ZERO)).await;
    assert_eq!(scene.resolve(&first).await, [Resolution::Committed]);
    let outcomes = vec![outcome(&second[0], done())];
    let fates = scene.commit_all(scene.worker, outcomes, numbers.to_vec()).await;
    assert_eq!(fates, COMMITTED);
    assert_eq!(scene.resolve(&first).await, [Resolution::Lost]);
    assert_eq!(scene.beat(scene.worker, HOUR).await, alive(&[]));
    assert_eq!(scene.commit(&first, done()).await, STALE);
    assert_eq!(scene.claim(10).await.len(), 1, "the other step is there");
}

/// The store says that a value is to blame; nothing was committed, nothing closed.
pub async fn a_refused_outcome_leaves_its_batch_undone(store: Arc<dyn Store>) {
    // contract: OUT-2
    let scene = Scene::new(store).await;
    let inserted = scene
        .insert(vec![keyed("k", Scope::UNTIL_TERMINAL), entry(), entry()])
        .await;
    let claimed = scene.claim(3).await;
    scene.commit(&claimed[2..], done()).await;
    let nul_step = Transition::Next {
        step: "a\0b".to_owned(),
        state: json("1"),
        delay: Duration::ZERO,
    };
    let bad_state = Transition::Retry {
        state: Some(json(r#""a\u0000b""#)),
        delay: Duration::ZERO,
        failure: None,
    };
    let bad_result = Transition::Done {
        result: json("{not json"),
    };
    for bad in [nul_step, bad_state, bad_result] {
        let outcomes = vec![outcome(&claimed[0], done()), outcome(&claimed[1], bad)];
        let closed = vec![claimed[0].fence.claim];
        assert_refused(&scene.try_commit(scene.worker, outcomes, closed).await);
    }
    assert_eq!(scene.find("k").await, Some(inserted[0].id()));
    assert_eq!(scene.snapshot(inserted[0].id()).await.status, Status::Executing);
    assert_eq!(
        scene.commit(&claimed[..2], done()).await,
        [CommitFate::Committed; 2]
    );
    let again = scene.insert(vec![keyed("k", Scope::UNTIL_TERMINAL)]).await;
    assert!(matches!(again[..], [Inserted::New(_)]), "{again:?}");
}

/// What was not taken back yet commits: no work is thrown away. What was taken back does not.
pub async fn a_dead_worker_commits_until_its_work_is_taken_back(store: Arc<dyn Store>) {
    // contract: LEASE-4, CLAIM-4
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(2).await;
    let claimed = scene.claim(2).await;
    scene.declare_dead(scene.worker).await;
    assert_eq!(scene.commit(&claimed[..1], done()).await, COMMITTED);
    assert_eq!(scene.reap_all(10).await.instances, 1);
    assert_eq!(scene.commit(&claimed, failed()).await, [CommitFate::Stale; 2]);
    assert_eq!(scene.standing(inserted[0]).await, (Status::Done, 0, 0));
    assert_eq!(scene.standing(inserted[1]).await, (Status::Runnable, 1, 1));
}
