//! The border to the store: what the runtime asks of a database.
//!
//! One method per family of statements; a batch goes in and a batch comes out; times are durations from the
//! store's own now, so that no clock of a worker decides anything. What recovery relies on stands with each
//! method. `durable-pg` implements it on Postgres, `durable-testing` in memory, as the reference model, and
//! one conformance suite runs on both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::{Failure, StoreError};
use crate::process::ProcessIdentity;
use crate::types::{
    ClaimNumber, CorrelationKey, Fence, InstanceId, Json, MachineKey, QueueName, Scope, Status, WorkerId,
};

/// When an instance may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligible {
    /// This long after the store's now.
    In(Duration),
    /// At an instant, as the caller's clock knows it.
    At(SystemTime),
}

/// One instance to insert: checked and encoded.
#[derive(Clone, Debug)]
pub struct NewInstance {
    /// The machine that it runs.
    pub machine: MachineKey,
    /// The queue that it is claimed from.
    pub queue: QueueName,
    /// Lower first.
    pub priority: i16,
    /// When it may be claimed first.
    pub eligible: Eligible,
    /// Its first step.
    pub step: String,
    /// Its state.
    pub state: Json,
    /// Its business identity, and while it counts as taken.
    pub correlation: Option<(CorrelationKey, Scope)>,
}

/// What became of one entry of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inserted {
    /// A new instance.
    New(InstanceId),
    /// The correlation key is taken by this instance; nothing was inserted.
    Duplicate(InstanceId),
}

impl Inserted {
    /// The new instance, or the one that holds the key.
    #[must_use]
    pub const fn id(self) -> InstanceId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// Whether nothing was inserted because the key is taken.
    #[must_use]
    pub const fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate(_))
    }
}

/// A worker that registers.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// The engine's name, for people.
    pub name: String,
    /// How long it is trusted without a heartbeat.
    pub lease: Duration,
    /// What tells this process from every other one, where the system can (rule LEASE-3).
    pub process: Option<ProcessIdentity>,
    /// Which maintenance it does.
    pub roles: Roles,
}

/// Which maintenance a worker does (rule OPS-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Whether it returns the work of dead workers.
    pub reaper: bool,
    /// Whether it removes terminal instances after their retention.
    pub collector: bool,
}

impl Roles {
    /// All of it.
    pub const ALL: Self = Self {
        reaper: true,
        collector: true,
    };
    /// None of it.
    pub const NONE: Self = Self {
        reaper: false,
        collector: false,
    };
}

/// What an engine should know of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Whether a live worker has the reaper role.
    pub reaper: bool,
    /// Whether a live worker has the collector role.
    pub collector: bool,
    /// The machines of which instances are ready in the given queues, and which are not among those given.
    /// In order.
    pub unknown: Vec<(QueueName, MachineKey)>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The lease is extended. The store holds these claims for the worker; one that the worker does not know
    /// is one whose answer was lost (rule CLAIM-6).
    Alive {
        /// All open claims of the worker.
        claims: Vec<ClaimNumber>,
    },
    /// The worker was declared dead; its work is being taken back.
    Dead,
}

/// Asks for work.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: WorkerId,
    /// The number of this claim; never used before by this worker.
    pub number: ClaimNumber,
    /// The queue.
    pub queue: QueueName,
    /// The machines that the worker knows; others are left alone, at no cost (rule FSM-5).
    pub machines: Arc<[MachineKey]>,
    /// At most this many.
    pub limit: usize,
}

/// What a claim brought.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// The instances, in the order of rule CLAIM-1.
    pub instances: Vec<ClaimedInstance>,
    /// How long until the next instance of the queue that waits for its time, or less when the store wants to
    /// be asked again sooner; `None` when there is none.
    pub next_due: Option<Duration>,
}

/// One claimed instance.
#[derive(Clone, Debug)]
pub struct ClaimedInstance {
    /// Which.
    pub id: InstanceId,
    /// What proves that it is ours.
    pub fence: Fence,
    /// Its machine, as an index into [`ClaimRequest::machines`].
    pub machine: usize,
    /// The step to run.
    pub step: String,
    /// Its state.
    pub state: Json,
    /// How often this step was tried before.
    pub attempt: u32,
    /// How often in a row a worker died while it held this step.
    pub crashes: u32,
}

/// One outcome to commit.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The instance.
    pub id: InstanceId,
    /// What proves that it is ours.
    pub fence: Fence,
    /// What comes next.
    pub transition: Transition,
}

/// What an outcome writes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transition {
    /// Another step; attempt and crashes go back to 0.
    Next {
        /// The step.
        step: String,
        /// The new state.
        state: Json,
        /// When it may be claimed.
        delay: Duration,
    },
    /// The same step again, attempt + 1; crashes go back to 0.
    Retry {
        /// The new state; `None` keeps the stored one.
        state: Option<Json>,
        /// When it may be claimed.
        delay: Duration,
        /// Why, if an error asked for it.
        failure: Option<Failure>,
    },
    /// Back to runnable as it was, because the step did not start or was interrupted by a shutdown.
    GiveBack,
    /// Terminal: done.
    Done {
        /// The result.
        result: Json,
    },
    /// Terminal: failed.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// Terminal: cancelled.
    Cancelled {
        /// Why.
        failure: Failure,
    },
}

impl Transition {
    /// Whether nothing more will run after it.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Done { .. } | Self::Failed { .. } | Self::Cancelled { .. }
        )
    }
}

/// What became of one outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitFate {
    /// It stands.
    Committed,
    /// The claim was lost before; nothing was changed (rule CLAIM-4).
    Stale,
    /// Another transaction holds the row; nothing was changed, commit it again soon (rule OUT-6).
    Locked,
}

/// What a commit whose answer was lost turned out to be (rule OUT-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// It stands.
    Committed,
    /// It does not stand, and the claim is still ours: commit it again.
    NotCommitted,
    /// The claim is gone: the store has gone on without us.
    Lost,
}

/// What the reaper did in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// How many workers it declared dead.
    pub workers: u64,
    /// How many instances it returned to runnable.
    pub instances: u64,
    /// Whether there is more to do at once: while it is true, ask again. True only if this round got on, as
    /// what other transactions hold is left for later.
    pub more: bool,
}

/// How long terminal instances are kept, by status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long done instances are kept; default one day.
    pub done: Duration,
    /// How long failed instances are kept; default one day.
    pub failed: Duration,
    /// How long cancelled instances are kept; default one day.
    pub cancelled: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 60 * 60);
        Self {
            done: day,
            failed: day,
            cancelled: day,
        }
    }
}

/// What the collector did in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many instances it removed.
    pub instances: u64,
    /// Whether there is more to do at once: while it is true, ask again. True only if this round got on, as
    /// what other transactions hold is left for later.
    pub more: bool,
}

/// One instance as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Which.
    pub id: InstanceId,
    /// Its machine.
    pub machine: MachineKey,
    /// Its queue.
    pub queue: QueueName,
    /// Where it stands.
    pub status: Status,
    /// Its current or last step.
    pub step: String,
    /// Its state.
    pub state: Json,
    /// How often this step was tried before.
    pub attempt: u32,
    /// How often in a row a worker died while it held this step.
    pub crashes: u32,
    /// Its result, once done.
    pub result: Option<Json>,
    /// What went wrong last: in the step that is being retried, or for good.
    pub failure: Option<Failure>,
    /// Its business identity, while it still holds it.
    pub correlation_key: Option<CorrelationKey>,
    /// How long until it may be claimed; zero when it is due, and meaningless unless it is runnable.
    pub due_in: Duration,
}

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
    /// forgets the claims in `closed`, of which nothing is left; one with an outcome that is `Locked` is kept.
    /// The answers stand in the caller's order. Of two outcomes of one instance the first is tried, the second
    /// is stale. Each fence is one that a claim gave to this worker: stores need not tell a forged one.
    ///
    /// [`StoreError::Refused`] means that nothing was committed because of one of the outcomes.
    async fn commit(
        &self,
        worker: WorkerId,
        outcomes: Arc<[Commit]>,
        closed: Vec<ClaimNumber>,
    ) -> Result<Vec<CommitFate>, StoreError>;

    /// Says what became of outcomes whose commit gave no answer. Waits for a commit that is still in
    /// progress. Only sound before the claims are named in `closed` of a later commit.
    async fn resolve(
        &self,
        worker: WorkerId,
        outcomes: Vec<(InstanceId, Fence)>,
    ) -> Result<Vec<Resolution>, StoreError>;

    /// Gives back everything that is left of these claims: back to runnable, attempt unchanged (CLAIM-6).
    async fn release(&self, worker: WorkerId, claims: Vec<ClaimNumber>) -> Result<(), StoreError>;

    /// One round of the reaper: declares workers dead whose lease ended, and returns work of dead workers to
    /// runnable, attempt + 1 and crashes + 1, at most about `limit` instances (rules LEASE-2, LEASE-5).
    async fn reap(&self, limit: usize) -> Result<Reaped, StoreError>;

    /// One round of the collector: removes at most about `limit` terminal instances older than the retention
    /// of their status (rule OPS-3).
    async fn collect(&self, retention: Retention, limit: usize) -> Result<Collected, StoreError>;

    /// Makes every instance of these machines in this queue that waits for its time due now, and says how many
    /// there were. For tests, which cannot wait, and for operators.
    async fn make_due(&self, queue: QueueName, machines: Arc<[MachineKey]>) -> Result<u64, StoreError>;

    /// Looks at what no claim shows: whether anybody does the maintenance, and which machines of these queues
    /// are none of `machines` (rules FSM-5, OPS-1).
    async fn survey(&self, queues: Vec<QueueName>, machines: Arc<[MachineKey]>)
    -> Result<Survey, StoreError>;

    /// The instances as they stand; `None` for one that is not there. In the caller's order.
    async fn snapshots(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Snapshot>>, StoreError>;

    /// The instance that holds a correlation key, if one does (rule ID-1).
    async fn find(&self, key: CorrelationKey) -> Result<Option<InstanceId>, StoreError>;
}

/// Extends the lease of one worker (rule LEASE-1).
#[async_trait]
pub trait Heart: Send {
    /// One beat: the lease runs on from now.
    async fn beat(&mut self, worker: WorkerId, lease: Duration) -> Result<Beat, StoreError>;
}
