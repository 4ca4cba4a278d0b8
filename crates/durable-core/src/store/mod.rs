//! The border to the store: what the runtime asks of a database.
//!
//! One method per family of statements; a batch goes in and a batch comes out; times are durations from the
//! store's own now, so that no clock of a worker decides anything. What recovery relies on stands with each
//! method. `durable-pg` implements it on Postgres, `durable-testing` in memory, as the reference model, and
//! one conformance suite runs on both.

mod claim;
mod commit;
mod insert;
mod limit;
mod maintenance;
mod member;
mod operation;
mod reading;
mod signal;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use claim::{Child, ClaimRequest, Claimed, ClaimedInstance, Coordination};
pub use commit::{
    Commit, CommitFate, CommitRequest, Committed, OutcomeTransaction, Patience, Resolution, Transition,
};
pub use insert::{Eligible, Inserted, NewInstance};
pub use limit::{BringBack, BroughtBack, DueKeys, KeyStanding, LimitKey, Limits, Policies, RateDemand};
pub use maintenance::{Collected, Expired, Reaped, Retention};
pub use member::{Meeting, Member, Secret, Serves};
pub use operation::{Operated, Operation, OperationFate};
pub use reading::{Settlement, Snapshot};
pub use signal::{Delivered, NewSignal, Signal, SignalFate, Target};
pub use worker::{Beat, NewWorker, Roles, Survey};

use crate::error::StoreError;
use crate::limiter::{LimitKind, LimitPolicy};
use crate::process::ProcessIdentity;
use crate::types::{
    ClaimNumber, ConcurrencyKey, CorrelationKey, Fence, InstanceId, LimitName, MachineKey, QueueName,
    WorkerId,
};

/// The store. All methods are safe to call from many tasks and processes at once.
///
/// # Cancel safety
/// A call that is dropped midway may or may not take effect, and never harms another call or the connections
/// of the store: implementations run their database work in tasks of their own.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// A value that is the same for two handles of the same data; used to refuse two engines of one name.
    fn identity(&self) -> String;

    /// Inserts a batch in one statement; the answers stand in the caller's order (rule INS-3).
    async fn insert(&self, entries: Vec<NewInstance>) -> Result<Vec<Inserted>, StoreError>;

    /// Registers a worker; its lease runs from now.
    async fn register(&self, worker: NewWorker) -> Result<WorkerId, StoreError>;

    /// A heart of its own: it opens its own connection, on the runtime that first calls it, so that neither
    /// a busy pool nor a blocked executor costs a lease.
    fn heart(&self) -> Box<dyn Heart>;

    /// Removes a worker that has nothing left. Does nothing when it still holds claims.
    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// Declares workers dead, so that the reaper takes their work back at once.
    async fn declare_dead(&self, workers: Vec<WorkerId>) -> Result<(), StoreError>;

    /// The live workers that ran in the same process table as `process` (rule LEASE-3).
    async fn neighbours(
        &self,
        process: ProcessIdentity,
    ) -> Result<Vec<(WorkerId, ProcessIdentity)>, StoreError>;

    /// Claims up to a batch. Never waits for a lock. Fails with [`StoreError::WorkerDead`] when the worker
    /// was declared dead.
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError>;

    /// Commits outcomes of one worker together, each only while its claim stands (rules CLAIM-4, OUT-1), and
    /// forgets the claims in `closed`, of which nothing is left; one with an outcome that is not settled is kept.
    /// The answers stand in the caller's order. Of two outcomes of one instance the first is tried, the second
    /// is stale. Each fence is one that a claim gave to this worker: stores need not tell a forged one.
    ///
    /// What an outcome wakes is woken by the same commit: a parent by the last child that it waits for
    /// (CHILD-1), a wait by a signal that came before it (SIG-2). Progress removes the awaited signals that the step
    /// was given, a terminal outcome the whole inbox (OUT-4).
    ///
    /// [`StoreError::Refused`] means that nothing was committed because of one of the outcomes.
    async fn commit(&self, request: CommitRequest) -> Result<Committed, StoreError>;

    /// Puts signals into inboxes, and wakes those who wait for them (rules SIG-1, SIG-2). Of several signals to one
    /// instance in one call, the inbox keeps the caller's order.
    async fn deliver(&self, signals: Vec<NewSignal>) -> Result<Delivered, StoreError>;

    /// Does what an operator asks, to each of the targets (rules CANCEL-1 to CANCEL-3). A target that is named
    /// twice is taken once, and both answers are the same. Waits a moment for rows that another transaction holds;
    /// then nothing is done, and the answer is [`StoreError::Transient`].
    async fn operate(&self, targets: Vec<Target>, operation: Operation) -> Result<Operated, StoreError>;

    /// The children of these instances that are not terminal, of every fan-out. In the order of their ids.
    async fn unfinished_children(&self, parents: Vec<InstanceId>) -> Result<Vec<InstanceId>, StoreError>;

    /// One round of firing deadlines: wakes at most about `limit` instances whose time has come (rule SIG-4).
    async fn expire(&self, limit: usize) -> Result<Expired, StoreError>;

    /// Says what became of outcomes whose commit gave no answer. Waits for a commit that is still in
    /// progress. Only sound before the claims are named in `closed` of a later commit.
    async fn resolve(
        &self,
        worker: WorkerId,
        outcomes: Vec<(InstanceId, Fence)>,
    ) -> Result<Vec<Resolution>, StoreError>;

    /// Gives back everything that is left of these claims: back to runnable, attempt unchanged (CLAIM-6). Answers the
    /// concurrency keys without a gate that it freed, and that others wait for.
    async fn release(
        &self,
        worker: WorkerId,
        claims: Vec<ClaimNumber>,
    ) -> Result<Vec<ConcurrencyKey>, StoreError>;

    /// One round of the reaper: declares workers dead whose lease ended, and returns work of dead workers to
    /// runnable, attempt + 1 and crashes + 1, at most about `limit` instances (rules LEASE-2, LEASE-5).
    async fn reap(&self, limit: usize) -> Result<Reaped, StoreError>;

    /// One round of the collector: removes at most about `limit` terminal instances older than the retention
    /// of their status (rule OPS-3). One whose parent is not terminal is kept (rule CHILD-4).
    async fn collect(&self, retention: Retention, limit: usize) -> Result<Collected, StoreError>;

    /// Brings instances back that wait for these keys: the first ones of each key, in the order of rule CLAIM-1, no more
    /// than there is room for by their weights, and no lighter one before a heavier one (rule LIM-7). They keep their
    /// place in the order of their queue, and do not queue up behind the others of their key again. A paused key has no
    /// room. In the caller's order.
    async fn bring_back(&self, keys: Vec<BringBack>) -> Result<Vec<BroughtBack>, StoreError>;

    /// At most about `limit` keys that it is time to look at, because others wait for them and there may be room now;
    /// of keys that nobody has looked at for long, too: so a crash between a freed slot and
    /// [`bring_back`](Self::bring_back) heals.
    async fn due_keys(&self, limit: usize) -> Result<DueKeys, StoreError>;

    /// Sets what a limit allows, on all nodes (rule LIM-8), and has all keys looked at that instances wait for. The
    /// version of the policy is ignored: the answer is the new one.
    async fn set_limit(&self, policy: LimitPolicy) -> Result<i64, StoreError>;

    /// Removes a limit. Instances with a key of a gate that is gone go one at a time; with a rate limit that is gone,
    /// they wait until it is there again. Whether it was there.
    async fn remove_limit(&self, kind: LimitKind, name: LimitName) -> Result<bool, StoreError>;

    /// All limits.
    async fn limits(&self) -> Result<Policies, StoreError>;

    /// Lets nothing with this key start for so long; `None` ends a pause.
    async fn pause_key(&self, key: LimitKey, pause: Option<Duration>) -> Result<(), StoreError>;

    /// How these keys stand, in the caller's order.
    async fn keys(&self, keys: Vec<LimitKey>) -> Result<Vec<KeyStanding>, StoreError>;

    /// One round of forgetting concurrency keys that nobody holds or waits for, at most about `limit`. How many were
    /// forgotten.
    async fn forget_keys(&self, limit: usize) -> Result<u64, StoreError>;

    /// Makes every instance of these machines in this queue that waits for its time due now, and says how many
    /// there were. For tests, which cannot wait, and for operators.
    async fn make_due(&self, queue: QueueName, machines: Arc<[MachineKey]>) -> Result<u64, StoreError>;

    /// Looks at what no claim shows: whether anybody does the maintenance, and which machines of these queues
    /// are none of `machines` (rules FSM-5, OPS-1).
    async fn survey(&self, queues: Vec<QueueName>, machines: Arc<[MachineKey]>)
    -> Result<Survey, StoreError>;

    /// The instances as they stand; `None` for one that is not there. In the caller's order.
    async fn snapshots(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Snapshot>>, StoreError>;

    /// As much of the instances as somebody needs who waits for them; `None` for one that is not there. In the
    /// caller's order.
    async fn settlements(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Settlement>>, StoreError>;

    /// Says that a process can be reached, and asks who else can (rule POKE-2). Who was silent for `absent_after` is
    /// no longer told of.
    async fn meet(&self, member: Member, absent_after: Duration) -> Result<Meeting, StoreError>;

    /// Takes a member off the list. Does nothing when it is not there, or stands there with another version by now.
    async fn part(&self, member: u64, version: u64) -> Result<(), StoreError>;

    /// Makes a new secret for the members (rule POKE-6). Older ones stay for as long as any of them may use them.
    async fn renew_secret(&self) -> Result<(), StoreError>;

    /// The instance that holds a correlation key, if one does (rule ID-1).
    async fn find(&self, key: CorrelationKey) -> Result<Option<InstanceId>, StoreError>;
}

/// Extends the lease of one worker (rule LEASE-1).
#[async_trait]
pub trait Heart: Send {
    /// One beat: the lease runs on from now.
    async fn beat(&mut self, worker: WorkerId, lease: Duration) -> Result<Beat, StoreError>;
}
