//! Running ahead: the next step on the claim that the worker has.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    ClaimedInstance, Commit, CommitFate, CommitRequest, Committed, Resolution, Transition,
};
use durable_core::{ClaimNumber, Fence, InstanceId, Status, Store, StoreError};

use super::scene::{HOUR, Scene, alive, assert_refused, done, ids, json, next, outcome, retry, value};
use super::waiting::{await_signals, cancel, child, expected, fan_out};

fn ahead() -> Transition {
    Transition::Ahead {
        step: "ahead".to_owned(),
        state: json("4"),
    }
}

impl Scene {
    /// Commits outcomes of the scene's worker; what runs ahead is claimed under this number.
    async fn commit_ahead(&self, outcomes: Vec<Commit>, number: ClaimNumber) -> Committed {
        let request = CommitRequest {
            ahead: Some(number),
            ..CommitRequest::new(self.worker, outcomes, Vec::new())
        };
        self.store.commit(request).await.expect("the commit is answered")
    }

    /// Runs one instance ahead, and answers it as it is claimed then.
    async fn run_ahead(&self, claimed: &ClaimedInstance) -> ClaimedInstance {
        let number = self.ask(0).number;
        let request = CommitRequest {
            ahead: Some(number),
            ..CommitRequest::new(
                self.worker,
                [outcome(claimed, ahead())],
                vec![claimed.fence.claim],
            )
        };
        let committed = self.store.commit(request).await.expect("the commit is answered");
        assert_eq!(
            (committed.fates, committed.woken),
            (vec![CommitFate::Committed], vec![])
        );
        ClaimedInstance {
            fence: Fence {
                claim: number,
                seq: claimed.fence.seq + 1,
            },
            ..claimed.clone()
        }
    }
}

/// The step is committed as any next one, and the instance is claimed again in the same commit.
pub async fn what_runs_ahead_is_claimed_again(store: Arc<dyn Store>) {
    // contract: RUN-1, CORE-1, CLAIM-4
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    let closed = vec![claimed.fence.claim];
    scene
        .commit_all(scene.worker, vec![outcome(&claimed, retry())], closed)
        .await;
    let mut claimed = scene.claim_one().await;
    for visit in 1..=3 {
        let before = claimed.clone();
        claimed = scene.run_ahead(&before).await;
        let snapshot = scene.snapshot(id).await;
        assert_eq!((snapshot.status, snapshot.visit), (Status::Executing, visit));
        assert_eq!(
            (snapshot.step.as_str(), value(&snapshot.state)),
            ("ahead", 4.into())
        );
        assert_eq!(
            (snapshot.attempt, snapshot.crashes, snapshot.failure),
            (0, 0, None)
        );
        assert_eq!(
            scene.commit(&[before], done()).await,
            [CommitFate::Stale],
            "its claim is over"
        );
        assert_eq!(scene.claim(10).await.len(), 0, "nobody else runs it");
        let own = alive(&[claimed.fence.claim]);
        assert_eq!(
            scene.beat(scene.worker, HOUR).await,
            own,
            "a beat lists the new claim alone"
        );
    }
    scene.committed(&[claimed], done()).await;
    assert_eq!(scene.status(id).await, Status::Done);
}

/// Going ahead consumes, as any progress, what the step was given.
pub async fn what_runs_ahead_consumes_its_signals(store: Arc<dyn Store>) {
    // contract: RUN-1, OUT-4
    let scene = Scene::new(store).await;
    let id = scene.parked(&["a"], Some(Duration::ZERO)).await;
    scene.expire(10).await;
    scene.send(id, "a").await;
    scene.send(id, "b").await;
    let claimed = scene.claim_one().await;
    scene.send(id, "a").await;
    let claimed = scene.run_ahead(&claimed).await;
    let snapshot = scene.snapshot(id).await;
    assert_eq!((snapshot.awaited, snapshot.deadline_fired), (Vec::new(), false));
    assert_eq!(scene.inbox(id).await, expected(&[(2, "b"), (3, "a")]));
    scene.committed(&[claimed], await_signals(&["a"], None)).await;
    assert_eq!(scene.status(id).await, Status::Runnable, "the later a is new");
    let claimed = scene.claim_one().await;
    scene
        .committed(&[claimed], fan_out(vec![child()], None, None))
        .await;
    scene.end_child(done()).await;
    let claimed = scene.claim_one().await;
    assert_eq!(claimed.coordination.children.len(), 1);
    let claimed = scene.run_ahead(&claimed).await;
    scene.release(vec![claimed.fence.claim]).await;
    assert_eq!(scene.claim_one().await.coordination.children, []);
}

/// Without a number for the claim nothing is done.
pub async fn running_ahead_needs_a_number(store: Arc<dyn Store>) {
    // contract: RUN-1
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(2).await;
    let claimed = scene.claim(2).await;
    let outcomes = vec![outcome(&claimed[0], done()), outcome(&claimed[1], ahead())];
    let request = CommitRequest::new(scene.worker, outcomes, Vec::new());
    let answer = scene.store.commit(request).await;
    assert!(matches!(answer, Err(StoreError::Fatal { .. })), "{answer:?}");
    for id in inserted {
        assert_eq!(scene.snapshot(id).await.visit, 0);
    }
    assert_eq!(scene.commit(&claimed, done()).await, [CommitFate::Committed; 2]);
}

/// Several of one commit share one claim, beside others that do not run ahead.
pub async fn only_what_runs_ahead_is_claimed(store: Arc<dyn Store>) {
    // contract: RUN-1, OUT-1
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(4).await;
    let claimed = scene.claim(4).await;
    let number = scene.ask(0).number;
    let transitions = [ahead(), next(Duration::ZERO), ahead(), done()];
    let outcomes = claimed
        .iter()
        .zip(transitions)
        .map(|(one, transition)| outcome(one, transition));
    let committed = scene.commit_ahead(outcomes.collect(), number).await;
    assert_eq!(committed.fates, [CommitFate::Committed; 4]);
    let mut statuses = Vec::new();
    for id in &inserted {
        statuses.push(scene.status(*id).await);
    }
    let (executing, runnable) = (Status::Executing, Status::Runnable);
    assert_eq!(statuses, [executing, runnable, executing, Status::Done]);
    scene.release(vec![number]).await;
    let mut again = ids(&scene.claim(10).await);
    again.sort_unstable();
    assert_eq!(again, inserted[..3]);
}

/// A number of which nothing came leaves no claim behind.
pub async fn a_number_without_an_outcome_leaves_no_claim(store: Arc<dyn Store>) {
    // contract: RUN-1, CLAIM-6
    let scene = Scene::new(store).await;
    scene.insert_plain(2).await;
    let claimed = scene.claim(2).await;
    let old = claimed[0].fence.claim;
    let next_step = vec![outcome(&claimed[0], next(Duration::ZERO))];
    let committed = scene.commit_ahead(next_step, scene.ask(0).number).await;
    assert_eq!(committed.fates, [CommitFate::Committed]);
    let stale = vec![outcome(&claimed[0], ahead())];
    let committed = scene.commit_ahead(stale, scene.ask(0).number).await;
    assert_eq!(committed.fates, [CommitFate::Stale]);
    assert_eq!(scene.beat(scene.worker, HOUR).await, alive(&[old]));
}

/// What runs ahead is lost with its worker, and comes back at the step that it had come to.
pub async fn what_runs_ahead_comes_back_from_a_lost_worker(store: Arc<dyn Store>) {
    // contract: RUN-1, LEASE-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    let claimed = scene.run_ahead(&claimed).await;
    scene.declare_dead(scene.worker).await;
    assert_eq!(scene.reap_all(10).await.instances, 1);
    assert_eq!(scene.standing(id).await, (Status::Runnable, 1, 1));
    assert_eq!(scene.snapshot(id).await.step, "ahead");
    assert_eq!(scene.commit(&[claimed], done()).await, [CommitFate::Stale]);
    let heir = scene.register(HOUR, None).await;
    assert_eq!(ids(&scene.claim_by(heir, 10).await), [id]);
}

/// A release gives back the new step, with the attempt that it has.
pub async fn what_runs_ahead_may_be_given_back(store: Arc<dyn Store>) {
    // contract: RUN-1, CLAIM-6
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    let claimed = scene.run_ahead(&claimed).await;
    scene.release(vec![claimed.fence.claim]).await;
    assert_eq!(scene.standing(id).await, (Status::Runnable, 0, 0));
    let again = scene.claim_one().await;
    assert_eq!((again.step.as_str(), again.visit), ("ahead", 1));
    assert_eq!(scene.commit(&[claimed], done()).await, [CommitFate::Stale]);
    scene.committed(&[again], done()).await;
}

/// When the answer is lost, the store says how far it is: the old claim committed, the new one open.
pub async fn running_ahead_is_resolved(store: Arc<dyn Store>) {
    // contract: RUN-1, OUT-3
    let scene = Scene::new(store).await;
    scene.insert_plain(1).await;
    let before = scene.claim_one().await;
    let number = scene.ask(0).number;
    let after = ClaimedInstance {
        fence: Fence {
            claim: number,
            seq: before.fence.seq + 1,
        },
        ..before.clone()
    };
    let both = [before.clone(), after.clone()];
    let (open, lost) = (Resolution::NotCommitted, Resolution::Lost);
    assert_eq!(scene.resolve(&both).await, [open, lost]);
    scene.commit_ahead(vec![outcome(&before, ahead())], number).await;
    assert_eq!(scene.resolve(&both).await, [Resolution::Committed, open]);
    scene.committed(&[after], done()).await;
    assert_eq!(scene.resolve(&both[1..]).await, [Resolution::Committed]);
}

/// A requested cancellation stops a run: nothing is committed, and nothing is claimed anew.
pub async fn a_requested_cancellation_stops_a_run(store: Arc<dyn Store>) {
    // contract: RUN-1, CANCEL-1
    let scene = Scene::new(store).await;
    let id: InstanceId = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    let claimed = scene.run_ahead(&claimed).await;
    scene.operate_one(id, cancel("because"), &[]).await;
    let outcomes = vec![outcome(&claimed, ahead())];
    let committed = scene.commit_ahead(outcomes, scene.ask(0).number).await;
    assert_eq!(committed.fates, [CommitFate::CancelRequested]);
    assert_eq!(scene.snapshot(id).await.visit, 1);
    scene.committed(&[claimed], Transition::cancelled()).await;
    assert_eq!(scene.status(id).await, Status::Cancelled);
}

/// A step that cannot be stored leaves the claim as it was.
pub async fn a_refused_step_is_not_run_ahead(store: Arc<dyn Store>) {
    // contract: RUN-1, OUT-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim_one().await;
    let bad = Transition::Ahead {
        step: "ahead".to_owned(),
        state: json("{"),
    };
    let request = CommitRequest {
        ahead: Some(scene.ask(0).number),
        ..CommitRequest::new(scene.worker, [outcome(&claimed, bad)], Vec::new())
    };
    assert_refused(&scene.store.commit(request).await);
    assert_eq!(scene.snapshot(id).await.visit, 0);
    assert_eq!(
        scene.beat(scene.worker, HOUR).await,
        alive(&[claimed.fence.claim])
    );
    assert_eq!(scene.commit(&[claimed], done()).await, [CommitFate::Committed]);
}
