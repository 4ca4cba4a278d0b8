//! What the model does about rows that another transaction holds, as Postgres does.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    ClaimRequest, ClaimedInstance, Commit, CommitFate, Eligible, NewInstance, NewWorker, Resolution,
    Transition,
};
use durable_core::{ClaimNumber, Json, MachineKey, QueueName, Store, WorkerId};
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
    let machine = MachineKey::new("plain", 1).expect("valid");
    let queue = QueueName::new("default").expect("valid");
    let entry = NewInstance {
        machine: machine.clone(),
        queue: queue.clone(),
        priority: 0,
        eligible: Eligible::In(Duration::ZERO),
        step: "first".to_owned(),
        state: Json::from_store("0".to_owned()),
        correlation: None,
    };
    store.insert(vec![entry; 2]).await.expect("inserted");
    let request = ClaimRequest {
        worker,
        number: NUMBER,
        queue,
        machines: Arc::new([machine]),
        limit: 2,
    };
    let claimed = store.claim(request).await.expect("claimed").instances;
    (worker, claimed)
}

fn done(claimed: &[ClaimedInstance]) -> Arc<[Commit]> {
    let done = |one: &ClaimedInstance| Commit {
        id: one.id,
        fence: one.fence,
        transition: Transition::Done {
            result: Json::from_store("true".to_owned()),
        },
    };
    claimed.iter().map(done).collect()
}

#[tokio::test]
async fn a_claim_with_a_locked_outcome_is_kept_even_if_it_was_to_be_closed() {
    // contract: OUT-6
    let store = MemoryStore::new();
    let (worker, claimed) = two_claimed(&store).await;
    store.faults().lock(claimed[0].id);
    let fates = store.commit(worker, done(&claimed), vec![NUMBER]).await;
    assert_eq!(
        fates.expect("answered"),
        [CommitFate::Locked, CommitFate::Committed]
    );
    store.faults().unlock(claimed[0].id);
    let fates = store.commit(worker, done(&claimed[..1]), vec![NUMBER]).await;
    assert_eq!(fates.expect("answered"), [CommitFate::Committed]);
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
    let fates = store.commit(worker, done(&claimed), Vec::new()).await;
    assert_eq!(
        fates.expect("answered"),
        [CommitFate::Committed, CommitFate::Stale]
    );
}
