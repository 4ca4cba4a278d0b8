//! What the cases share: one worker, short calls that panic where the store fails, and plain entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use durable_core::store::{
    Beat, BringBack, BroughtBack, ClaimRequest, Claimed, ClaimedInstance, Collected, Commit, CommitFate,
    CommitRequest, Committed, Eligible, Inserted, KeyStanding, LimitKey, Limits, NewInstance, NewWorker,
    RateDemand, Reaped, Resolution, Retention, Snapshot, Transition,
};
use durable_core::{
    ClaimNumber, ConcurrencyKey, CorrelationKey, Failure, FailureKind, InstanceId, Json, Limit, LimitName,
    LimitPolicy, MachineKey, ProcessIdentity, QueueName, RateKey, Scope, Status, Store, StoreError, WorkerId,
};
use serde_json::Value;

pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// More rounds than any case needs: an answer that always says "more" ends the case instead of hanging it.
const MOST_ROUNDS: usize = 1000;

pub(super) struct Scene {
    pub(super) store: Arc<dyn Store>,
    /// A worker with a lease of an hour.
    pub(super) worker: WorkerId,
    last_claim: AtomicI64,
}

impl Scene {
    pub(super) async fn new(store: Arc<dyn Store>) -> Self {
        let worker = store
            .register(new_worker(HOUR, None))
            .await
            .expect("a worker registers");
        Self {
            store,
            worker,
            last_claim: AtomicI64::new(0),
        }
    }

    pub(super) async fn register(&self, lease: Duration, process: Option<ProcessIdentity>) -> WorkerId {
        self.store
            .register(new_worker(lease, process))
            .await
            .expect("a worker registers")
    }

    pub(super) async fn insert(&self, entries: Vec<NewInstance>) -> Vec<Inserted> {
        self.store.insert(entries).await.expect("inserted")
    }

    pub(super) async fn insert_one(&self, entry: NewInstance) -> InstanceId {
        let inserted = self.insert(vec![entry]).await;
        assert!(
            matches!(inserted[..], [Inserted::New(_)]),
            "not inserted: {inserted:?}"
        );
        inserted[0].id()
    }

    pub(super) async fn insert_plain(&self, count: usize) -> Vec<InstanceId> {
        let inserted = self.insert(vec![entry(); count]).await;
        assert!(inserted.iter().all(|one| !one.is_duplicate()), "{inserted:?}");
        inserted.into_iter().map(Inserted::id).collect()
    }

    /// A request of the scene's worker for the plain machine and queue, under a new number.
    pub(super) fn ask(&self, limit: usize) -> ClaimRequest {
        ClaimRequest {
            worker: self.worker,
            number: ClaimNumber::new(self.last_claim.fetch_add(1, Ordering::Relaxed) + 1),
            queue: queue("default"),
            machines: Arc::new([machine("plain", 1)]),
            limit,
        }
    }

    pub(super) async fn answer(&self, request: ClaimRequest) -> Claimed {
        self.store.claim(request).await.expect("claimed")
    }

    pub(super) async fn claim(&self, limit: usize) -> Vec<ClaimedInstance> {
        self.answer(self.ask(limit)).await.instances
    }

    pub(super) async fn claim_by(&self, worker: WorkerId, limit: usize) -> Vec<ClaimedInstance> {
        let request = ClaimRequest {
            worker,
            ..self.ask(limit)
        };
        self.answer(request).await.instances
    }

    pub(super) async fn commit(
        &self,
        claimed: &[ClaimedInstance],
        transition: Transition,
    ) -> Vec<CommitFate> {
        let outcomes = claimed
            .iter()
            .map(|one| outcome(one, transition.clone()))
            .collect();
        self.commit_all(self.worker, outcomes, Vec::new()).await
    }

    pub(super) async fn commit_all(
        &self,
        worker: WorkerId,
        outcomes: Vec<Commit>,
        closed: Vec<ClaimNumber>,
    ) -> Vec<CommitFate> {
        self.try_commit(worker, outcomes, closed)
            .await
            .expect("the commit is answered")
    }

    /// Commits what is locked again, as the border asks for: a store may hold rows of a refused commit for a
    /// moment after it has answered.
    pub(super) async fn try_commit(
        &self,
        worker: WorkerId,
        outcomes: Vec<Commit>,
        closed: Vec<ClaimNumber>,
    ) -> Result<Vec<CommitFate>, StoreError> {
        let committed = self.try_commit_and_wake(worker, outcomes, closed).await?;
        Ok(committed.fates)
    }

    /// As [`try_commit`](Self::try_commit), with the queues that were woken.
    pub(super) async fn try_commit_and_wake(
        &self,
        worker: WorkerId,
        outcomes: Vec<Commit>,
        closed: Vec<ClaimNumber>,
    ) -> Result<Committed, StoreError> {
        let mut committed = Committed {
            fates: vec![CommitFate::Locked; outcomes.len()],
            woken: Vec::new(),
            freed: Vec::new(),
        };
        let mut closed = Some(closed);
        for _ in 0..MOST_ROUNDS {
            let open = |(at, outcome): (usize, &Commit)| {
                (committed.fates[at] == CommitFate::Locked).then(|| (at, outcome.clone()))
            };
            let (places, open): (Vec<usize>, Vec<Commit>) =
                outcomes.iter().enumerate().filter_map(open).unzip();
            if open.is_empty() && closed.is_none() {
                return Ok(committed);
            }
            let request = CommitRequest::new(worker, open, closed.take().unwrap_or_default());
            let answer = self.store.commit(request).await?;
            assert_eq!(answer.fates.len(), places.len(), "one answer for each outcome");
            for (at, fate) in places.into_iter().zip(answer.fates) {
                committed.fates[at] = fate;
            }
            committed.woken.extend(answer.woken);
            committed.freed.extend(answer.freed);
        }
        panic!("rows are locked, and nobody else is here");
    }

    /// Commits one outcome, which must stand; the keys that it freed, and that others wait for.
    pub(super) async fn commit_freeing(
        &self,
        claimed: &ClaimedInstance,
        transition: Transition,
    ) -> Vec<String> {
        let outcomes = vec![outcome(claimed, transition)];
        let committed = self
            .try_commit_and_wake(self.worker, outcomes.clone(), Vec::new())
            .await;
        let mut committed = committed.expect("the commit is answered");
        if committed.fates == [CommitFate::Stale] {
            // Of another worker of the case.
            panic!("the claim of {:?} is not the scene's", claimed.id);
        }
        assert_eq!(committed.fates, [CommitFate::Committed]);
        committed.freed.drain(..).map(|key| key.to_string()).collect()
    }

    /// So many instances with this concurrency key.
    pub(super) async fn insert_limited(&self, count: usize, key: &'static str) -> Vec<InstanceId> {
        let inserted = self.insert(vec![limited(key); count]).await;
        inserted.into_iter().map(Inserted::id).collect()
    }

    /// How a concurrency key stands.
    pub(super) async fn key(&self, key: &'static str) -> KeyStanding {
        let key = LimitKey::Concurrency(concurrency_key(key));
        self.store.keys(vec![key]).await.expect("read").remove(0)
    }

    pub(super) async fn pause(&self, key: &'static str, pause: Option<Duration>) {
        let key = LimitKey::Concurrency(concurrency_key(key));
        self.store.pause_key(key, pause).await.expect("answered");
    }

    /// Brings back who waits for a concurrency key; how many came.
    pub(super) async fn bring_back(&self, key: &'static str, room: u32) -> u64 {
        let key = LimitKey::Concurrency(concurrency_key(key));
        let unit = None;
        let brought = self.store.bring_back(vec![BringBack { key, room, unit }]).await;
        brought.expect("answered").remove(0).instances
    }

    /// Brings back who waits for a rate limit that adds ten tokens a second.
    pub(super) async fn bring_back_rate(&self, key: &'static str, room: u32) -> BroughtBack {
        let key = LimitKey::Rate(RateKey::new(key).expect("a valid key"));
        let unit = Some(Duration::from_millis(100));
        let brought = self.store.bring_back(vec![BringBack { key, room, unit }]).await;
        brought.expect("answered").remove(0)
    }

    /// Sets a limit; its version.
    pub(super) async fn set_limit(&self, name: &'static str, limit: Limit) -> i64 {
        let policy = LimitPolicy {
            name: LimitName::new(name).expect("a valid name"),
            limit,
            shards: 1,
            version: 0,
        };
        self.store.set_limit(policy).await.expect("set")
    }

    pub(super) async fn resolve(&self, claimed: &[ClaimedInstance]) -> Vec<Resolution> {
        let asked = claimed.iter().map(|one| (one.id, one.fence)).collect();
        self.store.resolve(self.worker, asked).await.expect("resolved")
    }

    pub(super) async fn release(&self, claims: Vec<ClaimNumber>) {
        self.store.release(self.worker, claims).await.expect("released");
    }

    /// What a heartbeat of the worker answers, its claims in order.
    pub(super) async fn beat(&self, worker: WorkerId, lease: Duration) -> Beat {
        let mut beat = self.store.heart().beat(worker, lease).await.expect("answered");
        if let Beat::Alive { claims, .. } = &mut beat {
            claims.sort_unstable();
        }
        beat
    }

    pub(super) async fn declare_dead(&self, worker: WorkerId) {
        self.store
            .declare_dead(vec![worker])
            .await
            .expect("declared dead");
    }

    pub(super) async fn reap(&self, limit: usize) -> Reaped {
        self.store.reap(limit).await.expect("reaped")
    }

    /// Reaps until nothing is left; the sum of all rounds.
    pub(super) async fn reap_all(&self, limit: usize) -> Reaped {
        let mut sum = Reaped::default();
        for _ in 0..MOST_ROUNDS {
            let round = self.reap(limit).await;
            sum.workers += round.workers;
            sum.instances += round.instances;
            if !round.more {
                return sum;
            }
        }
        panic!("the reaper still says more after {MOST_ROUNDS} rounds: {sum:?}");
    }

    pub(super) async fn collect(&self, retention: Retention, limit: usize) -> Collected {
        self.store.collect(retention, limit).await.expect("collected")
    }

    /// Collects until nothing is left; how many were removed.
    pub(super) async fn collect_all(&self, retention: Retention, limit: usize) -> u64 {
        let mut sum = 0;
        for _ in 0..MOST_ROUNDS {
            let round = self.collect(retention, limit).await;
            sum += round.instances;
            if !round.more {
                return sum;
            }
        }
        panic!("the collector still says more after {MOST_ROUNDS} rounds");
    }

    pub(super) async fn snapshots(&self, ids: &[InstanceId]) -> Vec<Option<Snapshot>> {
        self.store.snapshots(ids.to_vec()).await.expect("read")
    }

    pub(super) async fn snapshot(&self, id: InstanceId) -> Snapshot {
        let read = self.snapshots(&[id]).await.pop().flatten();
        read.expect("the instance is there")
    }

    /// Status, attempt and crashes.
    pub(super) async fn standing(&self, id: InstanceId) -> (Status, u32, u32) {
        let snapshot = self.snapshot(id).await;
        (snapshot.status, snapshot.attempt, snapshot.crashes)
    }

    pub(super) async fn find(&self, text: &'static str) -> Option<InstanceId> {
        self.store.find(key(text)).await.expect("looked up")
    }
}

fn new_worker(lease: Duration, process: Option<ProcessIdentity>) -> NewWorker {
    NewWorker {
        name: "conformance".to_owned(),
        lease,
        process,
        roles: durable_core::store::Roles::ALL,
    }
}

/// A heartbeat that tells of these claims, and of no cancellation.
pub(super) fn alive(claims: &[ClaimNumber]) -> Beat {
    Beat::Alive {
        claims: claims.to_vec(),
        cancelled: Vec::new(),
    }
}

/// An instance of the plain machine in the default queue, due now.
pub(super) fn entry() -> NewInstance {
    NewInstance {
        machine: machine("plain", 1),
        queue: queue("default"),
        priority: 0,
        eligible: Eligible::In(Duration::ZERO),
        step: "first".to_owned(),
        state: json("0"),
        correlation: None,
        limits: Limits::default(),
    }
}

pub(super) fn keyed(text: &'static str, scope: Scope) -> NewInstance {
    NewInstance {
        correlation: Some((key(text), scope)),
        ..entry()
    }
}

pub(super) fn concurrency_key(text: &'static str) -> ConcurrencyKey {
    ConcurrencyKey::new(text).expect("a valid key")
}

/// A concurrency key, and a rate limit with its weight.
pub(super) fn limits(key: Option<&'static str>, rate: Option<(&'static str, u32)>) -> Limits {
    Limits {
        concurrency: key.map(concurrency_key),
        rate: rate.map(|(key, weight)| RateDemand {
            key: RateKey::new(key).expect("a valid key"),
            weight,
        }),
    }
}

/// With a concurrency key, unless it is empty, and a rate limit.
pub(super) fn with_limits(key: &'static str, rate: Option<(&'static str, u32)>) -> NewInstance {
    NewInstance {
        limits: limits(Some(key).filter(|key| !key.is_empty()), rate),
        ..entry()
    }
}

pub(super) fn limited(key: &'static str) -> NewInstance {
    with_limits(key, None)
}

pub(super) fn later() -> NewInstance {
    NewInstance {
        eligible: Eligible::In(HOUR),
        ..entry()
    }
}

pub(super) fn machine(name: &'static str, version: u16) -> MachineKey {
    MachineKey::new(name, version).expect("a valid machine")
}

pub(super) fn queue(name: &'static str) -> QueueName {
    QueueName::new(name).expect("a valid queue")
}

pub(super) fn key(text: &'static str) -> CorrelationKey {
    CorrelationKey::new(text).expect("a valid key")
}

pub(super) fn json(text: &str) -> Json {
    Json::from_store(text.to_owned())
}

/// The value of JSON text: stores may write one value in several ways.
pub(super) fn value(json: &Json) -> Value {
    json.decode().expect("a store answers valid JSON")
}

pub(super) fn failure(text: &str) -> Failure {
    Failure::new(FailureKind::Error, text)
}

pub(super) fn outcome(claimed: &ClaimedInstance, transition: Transition) -> Commit {
    Commit::of(claimed, transition)
}

pub(super) fn ids(claimed: &[ClaimedInstance]) -> Vec<InstanceId> {
    claimed.iter().map(|one| one.id).collect()
}

pub(super) fn next(delay: Duration) -> Transition {
    Transition::Next {
        step: "second".to_owned(),
        state: json("1"),
        delay,
    }
}

pub(super) fn retry() -> Transition {
    Transition::Retry {
        state: None,
        delay: Duration::ZERO,
        failure: None,
    }
}

pub(super) fn done() -> Transition {
    Transition::Done { result: json("true") }
}

pub(super) fn failed() -> Transition {
    Transition::Failed {
        failure: failure("failed"),
    }
}

pub(super) fn cancelled() -> Transition {
    Transition::Cancelled {
        failure: Failure::new(FailureKind::Cancelled, "cancelled"),
    }
}

/// What is terminal may go at once.
pub(super) const KEEP_NOTHING: Retention = Retention {
    done: Duration::ZERO,
    failed: Duration::ZERO,
    cancelled: Duration::ZERO,
};

pub(super) fn assert_dead<T: std::fmt::Debug>(answer: &Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::WorkerDead)), "{answer:?}");
}

pub(super) fn assert_refused<T: std::fmt::Debug>(answer: &Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Refused { .. })), "{answer:?}");
}
