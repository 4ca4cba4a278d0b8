//! The store in memory: the reference model of [`Store`].
//!
//! One lock, ordered maps, no cleverness: each rule stands in one place of `state`, so that it can be read
//! beside the contract. Time is tokio's, so that a test under paused time moves it. The Postgres store gives
//! the same answers; the conformance suite and the random histories compare the two.

mod course;
mod faults;
mod state;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use durable_core::store::{
    Beat, BringBack, BroughtBack, ClaimRequest, Claimed, Collected, CommitRequest, Committed, Delivered,
    DueKeys, Expired, Heart, Inserted, KeyStanding, LimitKey, Meeting, Member, NewInstance, NewSignal,
    NewWorker, Operated, Operation, Policies, Reaped, Resolution, Retention, Settlement, Snapshot, Store,
    Survey, Target,
};
use durable_core::{
    ClaimNumber, ConcurrencyKey, CorrelationKey, Fence, InstanceId, LimitKind, LimitName, LimitPolicy,
    MachineKey, ProcessIdentity, QueueName, StoreError, WorkerId,
};
use tokio::task::yield_now;
use tokio::time::Instant;

pub(crate) use course::{Course, Seen, Standing, Witness};
pub(crate) use faults::Fault;
pub use faults::{Call, Faults};
use faults::{FaultState, refuses_operation, refuses_signal};
pub(crate) use state::State;

/// A [`Store`] in memory. A clone is another handle of the same data.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    /// Which process it pretends to be in.
    process: u64,
    /// How its calls go, if a simulation decides it.
    course: Option<Arc<dyn Course>>,
}

struct Shared {
    number: u64,
    /// How many other processes handles have pretended to be in.
    processes: AtomicU64,
    /// The store's clock counts from here.
    origin: Instant,
    inside: Mutex<Inside>,
}

struct Inside {
    state: State,
    faults: FaultState,
    witness: Option<Box<dyn Witness>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic of a test's predicate leaves the state whole: it runs before any change.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl From<MemoryStore> for Arc<dyn Store> {
    fn from(store: MemoryStore) -> Self {
        Arc::<MemoryStore>::new(store)
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        static STORES: AtomicU64 = AtomicU64::new(1);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let shared = Shared {
            number,
            processes: AtomicU64::new(0),
            origin: Instant::now(),
            inside: Mutex::new(Inside {
                state: State::new(SystemTime::now()),
                faults: FaultState::default(),
                witness: None,
            }),
        };
        Self {
            shared: Arc::new(shared),
            process: 0,
            course: None,
        }
    }

    /// Another handle of the same data that engines and clients take for one in another process: they share nothing
    /// with those of this handle but the data.
    #[must_use]
    pub fn in_another_process(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            process: self.shared.processes.fetch_add(1, Ordering::Relaxed) + 1,
            course: None,
        }
    }

    /// As [`in_another_process`](Self::in_another_process), and how the calls of the handle go is decided here.
    pub(crate) fn on(&self, course: Arc<dyn Course>) -> Self {
        Self {
            course: Some(course),
            ..self.in_another_process()
        }
    }

    /// Has all effects seen from now on.
    pub(crate) fn witnessed(&self, witness: Box<dyn Witness>) {
        self.shared.lock().witness = Some(witness);
    }

    /// Looks at the data, and the time by the store's clock.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&State, Duration) -> T) -> T {
        look(&self.shared.lock().state, self.shared.origin.elapsed())
    }

    /// What a test may make go wrong.
    #[must_use]
    pub fn faults(&self) -> Faults {
        Faults::new(Arc::clone(&self.shared))
    }

    /// One call: a moment before and after, as a database would take, and its effect at once in between.
    async fn call<T: Send + Debug>(
        &self,
        call: Call,
        asked: &(dyn Debug + Sync),
        work: impl FnOnce(&mut Inside, Duration) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let fault = match &self.course {
            Some(course) => course.before(call).await,
            None => {
                yield_now().await;
                None
            }
        };
        self.shared.lock().faults.count(call);
        loop {
            // Looked up under the lock, so that a let_go between here and the wait is not missed.
            let held = self.shared.lock().faults.held(call);
            match held {
                Some(let_go) => let_go.await,
                None => break,
            }
        }
        let answer = self.at_once(call, fault, asked, work);
        match &self.course {
            Some(course) => course.after(call).await,
            None => yield_now().await,
        }
        answer
    }

    fn at_once<T: Debug>(
        &self,
        call: Call,
        fault: Option<Fault>,
        asked: &dyn Debug,
        work: impl FnOnce(&mut Inside, Duration) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut inside = self.shared.lock();
        let fault = fault.or_else(|| inside.faults.take(call));
        let before = || format!("injected before {call:?}");
        match fault {
            Some(Fault::Transient) => return Err(StoreError::Transient { message: before() }),
            Some(Fault::LostCall) => return Err(StoreError::Unknown { message: before() }),
            Some(Fault::LostAnswer) | None => {}
        }
        let now = self.shared.origin.elapsed();
        let answer = work(&mut inside, now);
        if let Inside {
            witness: Some(witness),
            state,
            ..
        } = &mut *inside
        {
            witness.saw(&Seen {
                now,
                process: self.process,
                call,
                asked,
                answer: &answer,
                lost: fault == Some(Fault::LostAnswer),
                state,
            });
        }
        if fault == Some(Fault::LostAnswer) {
            return Err(StoreError::Unknown {
                message: format!("injected after {call:?}"),
            });
        }
        answer
    }
}

fn refused(what: &str, index: usize) -> StoreError {
    StoreError::Refused {
        message: format!("{what} {index} of the batch cannot be stored"),
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn identity(&self) -> String {
        format!("memory:{}:{}", self.shared.number, self.process)
    }

    async fn insert(&self, entries: Vec<NewInstance>) -> Result<Vec<Inserted>, StoreError> {
        self.call(Call::Insert, &entries, |inside, now| {
            if let Some(bad) = entries
                .iter()
                .position(|entry| inside.faults.refuses_insert(entry))
            {
                return Err(refused("entry", bad));
            }
            Ok(inside.state.insert(now, entries.clone()))
        })
        .await
    }

    async fn register(&self, worker: NewWorker) -> Result<WorkerId, StoreError> {
        self.call(Call::Register, &worker.name, |inside, now| {
            Ok(inside.state.register(now, worker.clone()))
        })
        .await
    }

    fn heart(&self) -> Box<dyn Heart> {
        Box::new(MemoryHeart { store: self.clone() })
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.call(Call::Retire, &worker, |inside, _| {
            inside.state.retire(worker);
            Ok(())
        })
        .await
    }

    async fn declare_dead(&self, workers: Vec<WorkerId>) -> Result<(), StoreError> {
        self.call(Call::DeclareDead, &workers, |inside, _| {
            inside.state.declare_dead(&workers);
            Ok(())
        })
        .await
    }

    async fn neighbours(
        &self,
        process: ProcessIdentity,
    ) -> Result<Vec<(WorkerId, ProcessIdentity)>, StoreError> {
        self.call(Call::Neighbours, &(), |inside, _| {
            Ok(inside.state.neighbours(&process))
        })
        .await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        self.call(Call::Claim, &request, |inside, now| {
            inside.state.claim(now, &request, inside.faults.locked())
        })
        .await
    }

    async fn commit(&self, request: CommitRequest) -> Result<Committed, StoreError> {
        self.call(Call::Commit, &request, |inside, now| {
            if let Some(bad) = request
                .outcomes
                .iter()
                .position(|commit| inside.faults.refuses_commit(commit))
            {
                return Err(refused("outcome", bad));
            }
            inside.state.commit(now, &request, inside.faults.locked())
        })
        .await
    }

    async fn deliver(&self, signals: Vec<NewSignal>) -> Result<Delivered, StoreError> {
        self.call(Call::Deliver, &signals, |inside, now| {
            if let Some(bad) = signals.iter().position(refuses_signal) {
                return Err(refused("signal", bad));
            }
            inside.state.deliver(now, signals.clone(), inside.faults.locked())
        })
        .await
    }

    async fn operate(&self, targets: Vec<Target>, operation: Operation) -> Result<Operated, StoreError> {
        self.call(Call::Operate, &(&targets, &operation), |inside, now| {
            if refuses_operation(&operation) {
                return Err(StoreError::Refused {
                    message: "the reason of a cancellation cannot be stored".to_owned(),
                });
            }
            inside
                .state
                .operate(now, &targets, &operation, inside.faults.locked())
        })
        .await
    }

    async fn unfinished_children(&self, parents: Vec<InstanceId>) -> Result<Vec<InstanceId>, StoreError> {
        self.call(Call::UnfinishedChildren, &parents, |inside, _| {
            Ok(inside.state.unfinished_children(&parents))
        })
        .await
    }

    async fn expire(&self, limit: usize) -> Result<Expired, StoreError> {
        self.call(Call::Expire, &limit, |inside, now| {
            Ok(inside.state.expire(now, limit, inside.faults.locked()))
        })
        .await
    }

    async fn resolve(
        &self,
        worker: WorkerId,
        outcomes: Vec<(InstanceId, Fence)>,
    ) -> Result<Vec<Resolution>, StoreError> {
        self.call(Call::Resolve, &(&worker, &outcomes), |inside, _| {
            Ok(outcomes
                .iter()
                .map(|(id, fence)| inside.state.resolve(worker, *id, *fence))
                .collect())
        })
        .await
    }

    async fn release(
        &self,
        worker: WorkerId,
        claims: Vec<ClaimNumber>,
    ) -> Result<Vec<ConcurrencyKey>, StoreError> {
        let claims: BTreeSet<ClaimNumber> = claims.into_iter().collect();
        self.call(Call::Release, &(&worker, &claims), |inside, _| {
            let mut freed = Vec::new();
            for number in &claims {
                freed.extend(inside.state.release(worker, *number, inside.faults.locked()));
            }
            Ok(freed)
        })
        .await
    }

    async fn reap(&self, limit: usize) -> Result<Reaped, StoreError> {
        self.call(Call::Reap, &limit, |inside, now| {
            Ok(inside.state.reap(now, limit, inside.faults.locked()))
        })
        .await
    }

    async fn collect(&self, retention: Retention, limit: usize) -> Result<Collected, StoreError> {
        self.call(Call::Collect, &limit, |inside, now| {
            Ok(inside
                .state
                .collect(now, retention, limit, inside.faults.locked()))
        })
        .await
    }

    async fn bring_back(&self, keys: Vec<BringBack>) -> Result<Vec<BroughtBack>, StoreError> {
        self.call(Call::BringBack, &keys, |inside, now| {
            Ok(inside.state.bring_back(now, &keys))
        })
        .await
    }

    async fn due_keys(&self, limit: usize) -> Result<DueKeys, StoreError> {
        self.call(Call::DueKeys, &limit, |inside, now| {
            Ok(inside.state.due_keys(now, limit))
        })
        .await
    }

    async fn set_limit(&self, policy: LimitPolicy) -> Result<i64, StoreError> {
        self.call(Call::SetLimit, &policy, |inside, now| {
            Ok(inside.state.set_limit(now, policy.clone()))
        })
        .await
    }

    async fn remove_limit(&self, kind: LimitKind, name: LimitName) -> Result<bool, StoreError> {
        self.call(Call::RemoveLimit, &(&kind, &name), |inside, now| {
            Ok(inside.state.remove_limit(now, kind, &name))
        })
        .await
    }

    async fn limits(&self) -> Result<Policies, StoreError> {
        self.call(Call::Limits, &(), |inside, _| Ok(inside.state.policies()))
            .await
    }

    async fn pause_key(&self, key: LimitKey, pause: Option<Duration>) -> Result<(), StoreError> {
        self.call(Call::PauseKey, &(&key, pause), |inside, now| {
            inside.state.pause_key(now, &key, pause);
            Ok(())
        })
        .await
    }

    async fn keys(&self, keys: Vec<LimitKey>) -> Result<Vec<KeyStanding>, StoreError> {
        self.call(Call::Keys, &keys, |inside, now| {
            Ok(keys
                .iter()
                .map(|key| inside.state.key_standing(now, key))
                .collect())
        })
        .await
    }

    async fn forget_keys(&self, limit: usize) -> Result<u64, StoreError> {
        self.call(Call::ForgetKeys, &limit, |inside, now| {
            Ok(inside.state.forget_keys(now, limit))
        })
        .await
    }

    async fn make_due(&self, queue: QueueName, machines: Arc<[MachineKey]>) -> Result<u64, StoreError> {
        self.call(Call::MakeDue, &queue, |inside, now| {
            Ok(inside.state.make_due(now, &queue, &machines))
        })
        .await
    }

    async fn survey(
        &self,
        queues: Vec<QueueName>,
        machines: Arc<[MachineKey]>,
    ) -> Result<Survey, StoreError> {
        self.call(Call::Survey, &queues, |inside, now| {
            Ok(inside.state.survey(now, &queues, &machines))
        })
        .await
    }

    async fn snapshots(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Snapshot>>, StoreError> {
        self.call(Call::Snapshots, &ids, |inside, now| {
            Ok(ids.iter().map(|id| inside.state.snapshot(now, *id)).collect())
        })
        .await
    }

    async fn settlements(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Settlement>>, StoreError> {
        self.call(Call::Settlements, &ids, |inside, _| {
            Ok(ids.iter().map(|id| inside.state.settlement(*id)).collect())
        })
        .await
    }

    async fn meet(&self, member: Member, absent_after: Duration) -> Result<Meeting, StoreError> {
        self.call(Call::Meet, &member, |inside, now| {
            Ok(inside.state.members.meet(now, member.clone(), absent_after))
        })
        .await
    }

    async fn part(&self, member: u64, version: u64) -> Result<(), StoreError> {
        self.call(Call::Part, &member, |inside, _| {
            inside.state.members.part(member, version);
            Ok(())
        })
        .await
    }

    async fn renew_secret(&self) -> Result<(), StoreError> {
        self.call(Call::RenewSecret, &(), |inside, now| {
            inside.state.members.renew_secret(now);
            Ok(())
        })
        .await
    }

    async fn find(&self, key: CorrelationKey) -> Result<Option<InstanceId>, StoreError> {
        self.call(Call::Find, &key, |inside, _| Ok(inside.state.find(&key)))
            .await
    }
}

struct MemoryHeart {
    store: MemoryStore,
}

#[async_trait]
impl Heart for MemoryHeart {
    async fn beat(&mut self, worker: WorkerId, lease: Duration) -> Result<Beat, StoreError> {
        self.store
            .call(Call::Beat, &worker, |inside, now| {
                Ok(inside.state.beat(now, worker, lease))
            })
            .await
    }
}
