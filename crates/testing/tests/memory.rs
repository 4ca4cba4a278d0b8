//! What the model does about rows that another transaction holds, as Postgres does.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    ClaimRequest, ClaimedInstance, Commit, CommitFate, CommitRequest, Eligible, NewInstance, NewSignal,
    NewWorker, Operation, Patience, Resolution, Transition,
};
use durable_core::{
    ClaimNumber, Failure, FailureKind, Json, MachineKey, QueueName, SignalName, Status, Store, StoreError,
    WorkerId,
};
use durable_testing::memory::MemoryStore;

const NUMBER: ClaimNumber = ClaimNumber::new(1);

/// Two instances, claimed together.
async fn two_claimed(store: &MemoryStore) -> (WorkerId, Vec<ClaimedInstance>) {
    let worker = NewWorker {
        name: "test".to_owned(),
        lease: Duration::from_secs(60),
        process: None,
        roles: durable_core::store::Roles::ALL,
    };
    let worker = store.register(worker).await.expect("registered");
    store.insert(vec![entry(); 2]).await.expect("inserted");
    let claimed = claim(store, worker, NUMBER.get()).await;
    (worker, claimed)
}

fn entry() -> NewInstance {
    NewInstance {
        machine: MachineKey::new("plain", 1).expect("valid"),
        queue: QueueName::new("default").expect("valid"),
        priority: 0,
        eligible: Eligible::In(Duration::ZERO),
        step: "first".to_owned(),
        state: Json::from_store("0".to_owned()),
        correlation: None,
        limits: durable_core::store::Limits::default(),
    }
}

async fn claim(store: &MemoryStore, worker: WorkerId, number: i64) -> Vec<ClaimedInstance> {
    let request = ClaimRequest {
        worker,
        number: ClaimNumber::new(number),
        queue: entry().queue,
        machines: Arc::new([entry().machine]),
        limit: 2,
    };
    store.claim(request).await.expect("claimed").instances
}

fn done(claimed: &[ClaimedInstance]) -> Arc<[Commit]> {
    let done = |one: &ClaimedInstance| {
        Commit::of(
            one,
            Transition::Done {
                result: Json::from_store("true".to_owned()),
            },
        )
    };
    claimed.iter().map(done).collect()
}

async fn commit(
    store: &MemoryStore,
    worker: WorkerId,
    outcomes: Arc<[Commit]>,
    closed: Vec<ClaimNumber>,
) -> Vec<CommitFate> {
    let request = CommitRequest::new(worker, outcomes, closed);
    store.commit(request).await.expect("answered").fates
}

#[tokio::test]
async fn a_claim_with_a_locked_outcome_is_kept_even_if_it_was_to_be_closed() {
    // contract: OUT-6
    let store = MemoryStore::new();
    let (worker, claimed) = two_claimed(&store).await;
    store.faults().lock(claimed[0].id);
    let fates = commit(&store, worker, done(&claimed), vec![NUMBER]).await;
    assert_eq!(fates, [CommitFate::Locked, CommitFate::Committed]);
    store.faults().unlock(claimed[0].id);
    let fates = commit(&store, worker, done(&claimed[..1]), vec![NUMBER]).await;
    assert_eq!(fates, [CommitFate::Committed]);
}

#[tokio::test]
async fn what_was_taken_back_from_a_claim_that_is_still_there_resolves_as_lost() {
    // contract: OUT-3, LEASE-5
    let store = MemoryStore::new();
    let (worker, claimed) = two_claimed(&store).await;
    store.faults().lock(claimed[0].id);
    store.release(worker, vec![NUMBER]).await.expect("released");
    let asked = claimed.iter().map(|one| (one.id, one.fence)).collect();
    let resolved = store.resolve(worker, asked).await.expect("resolved");
    assert_eq!(resolved, [Resolution::NotCommitted, Resolution::Lost]);
    store.faults().unlock(claimed[0].id);
    let fates = commit(&store, worker, done(&claimed), Vec::new()).await;
    assert_eq!(fates, [CommitFate::Committed, CommitFate::Stale]);
}

fn name() -> SignalName {
    SignalName::new("a").expect("valid")
}

/// Commits one outcome with a patience, and says what became of it.
async fn commit_one(
    store: &MemoryStore,
    worker: WorkerId,
    outcome: Commit,
    patience: Patience,
) -> Result<CommitFate, StoreError> {
    let request = CommitRequest {
        patience,
        ..CommitRequest::new(worker, [outcome], Vec::new())
    };
    Ok(store.commit(request).await?.fates[0])
}

#[tokio::test]
async fn an_end_is_set_aside_while_the_parent_is_locked() {
    // contract: OUT-6, CHILD-1
    let store = MemoryStore::new();
    let (worker, claimed) = two_claimed(&store).await;
    let parent = claimed[0].id;
    let fan_out = Transition::ScheduleChildren {
        step: "joined".to_owned(),
        state: Json::from_store("0".to_owned()),
        children: vec![entry()],
        needed: None,
        timeout: None,
    };
    let outcome = Commit::of(&claimed[0], fan_out);
    commit_one(&store, worker, outcome, Patience::Skip)
        .await
        .expect("answered");
    let child = claim(&store, worker, 2).await.remove(0);
    store.faults().lock(parent);
    let retry = Transition::Retry {
        state: None,
        delay: Duration::ZERO,
        failure: None,
    };
    let fate = commit_one(&store, worker, Commit::of(&child, retry), Patience::Skip).await;
    assert_eq!(fate.expect("answered"), CommitFate::Committed, "no end");
    let child = claim(&store, worker, 3).await.remove(0);
    let end = || Commit::of(&child, Transition::cancelled());
    let fate = commit_one(&store, worker, end(), Patience::Skip).await;
    assert_eq!(fate.expect("answered"), CommitFate::Locked);
    let answer = commit_one(&store, worker, end(), Patience::Wait).await;
    assert!(matches!(answer, Err(StoreError::Transient { .. })), "{answer:?}");
    let cancel = Operation::Cancel {
        failure: Failure::new(FailureKind::Cancelled, "because"),
    };
    let answer = store.operate(vec![child.id.into()], cancel).await;
    assert!(matches!(answer, Err(StoreError::Transient { .. })), "{answer:?}");
    store.faults().unlock(parent);
    let fate = commit_one(&store, worker, end(), Patience::Wait).await;
    assert_eq!(fate.expect("answered"), CommitFate::Committed);
}

#[tokio::test]
async fn what_waits_for_a_locked_row_fails_as_transient_and_does_nothing() {
    // contract: OUT-6, SIG-1, CANCEL-3
    let store = MemoryStore::new();
    let (worker, claimed) = two_claimed(&store).await;
    let wait = Transition::Await {
        step: "woken".to_owned(),
        state: Json::from_store("0".to_owned()),
        signals: vec![name()],
        timeout: Some(Duration::ZERO),
    };
    let outcomes: Vec<Commit> = claimed.iter().map(|one| Commit::of(one, wait.clone())).collect();
    store
        .commit(CommitRequest::new(worker, outcomes, Vec::new()))
        .await
        .expect("answered");
    let locked = claimed[1].id;
    store.faults().lock(locked);
    let signals = claimed.iter().map(|one| NewSignal {
        target: one.id.into(),
        name: name(),
        payload: Json::from_store("0".to_owned()),
        deduplication_key: None,
    });
    let answer = store.deliver(signals.collect()).await;
    assert!(matches!(answer, Err(StoreError::Transient { .. })), "{answer:?}");
    let targets = claimed.iter().map(|one| one.id.into()).collect();
    let answer = store.operate(targets, Operation::Wake).await;
    assert!(matches!(answer, Err(StoreError::Transient { .. })), "{answer:?}");
    for snapshot in store.snapshots(vec![claimed[0].id, locked]).await.expect("read") {
        let snapshot = snapshot.expect("there");
        assert_eq!(
            (snapshot.status, snapshot.inbox.len()),
            (Status::AwaitingSignal, 0)
        );
    }
    let expired = store.expire(10).await.expect("expired");
    assert_eq!(
        (expired.instances, expired.more),
        (1, false),
        "a locked row is left for later"
    );
    store.faults().unlock(locked);
    assert_eq!(store.expire(10).await.expect("expired").instances, 1);
}
