//! What an outcome writes, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::claim::ClaimedInstance;
use super::insert::NewInstance;
use super::limit::Limits;
use crate::error::{Failure, FailureKind, StoreError};
use crate::limiter::LimitKind;
use crate::types::{ClaimNumber, ConcurrencyKey, Fence, InstanceId, Json, QueueName, SignalName, WorkerId};

/// One outcome to commit.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The instance.
    pub id: InstanceId,
    /// What proves that it is ours.
    pub fence: Fence,
    /// Its parent, as the claim said: a terminal outcome counts towards its join.
    pub parent: Option<InstanceId>,
    /// How many signals it had received, as the claim said: later ones are new to it (rule OUT-4).
    pub received: u32,
    /// What comes next.
    pub transition: Transition,
    /// What holds the next step back, where it changes; `None` keeps what there is (rule LIM-3).
    pub limits: Option<Limits>,
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
    /// As [`Next`](Self::Next), at once, and the worker keeps the instance: in the same commit it is claimed again,
    /// as [`CommitRequest::ahead`], with a fencing number that is one higher (rule RUN-1).
    Ahead {
        /// The step.
        step: String,
        /// The new state.
        state: Json,
    },
    /// Parks until a signal of one of these names comes, or the timeout; then runs the step. Goes on at once when
    /// there is one in the inbox that was not given to this step as awaited (rule SIG-3). Attempt and crashes go
    /// back to 0.
    Await {
        /// The step.
        step: String,
        /// The new state.
        state: Json,
        /// The names; at least one.
        signals: Vec<SignalName>,
        /// How long to wait at most.
        timeout: Option<Duration>,
    },
    /// Inserts children and parks until enough of them are terminal, or the timeout; then runs the step. Goes on at
    /// once when there is nobody to wait for (rule CHILD-1). Attempt and crashes go back to 0.
    ScheduleChildren {
        /// The step.
        step: String,
        /// The new state.
        state: Json,
        /// The children. Those whose correlation key is taken are not inserted, and not waited for.
        children: Vec<NewInstance>,
        /// How many must be terminal; `None` means all.
        needed: Option<u32>,
        /// How long to wait at most.
        timeout: Option<Duration>,
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
    /// Back to runnable as it was, because one of its limits has no room, and behind the others that wait for that
    /// (rule LIM-7).
    Blocked {
        /// The limit that has none: one of the instance's.
        by: LimitKind,
        /// When somebody looks whether it has room, if nobody does before.
        look_in: Duration,
    },
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
    /// The end of an instance whose cancellation was asked for. The store knows why.
    #[must_use]
    pub fn cancelled() -> Self {
        let failure = Failure::new(FailureKind::Cancelled, "cancelled while its step ran");
        Self::Cancelled { failure }
    }

    /// Whether nothing more will run after it.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Done { .. } | Self::Failed { .. } | Self::Cancelled { .. }
        )
    }
}

impl Commit {
    /// The outcome of a claimed instance.
    #[must_use]
    pub const fn of(claimed: &ClaimedInstance, transition: Transition) -> Self {
        Self {
            id: claimed.id,
            fence: claimed.fence,
            parent: claimed.coordination.parent,
            received: claimed.coordination.received,
            transition,
            limits: None,
        }
    }
}

/// Outcomes of one worker to commit together.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// The worker.
    pub worker: WorkerId,
    /// The outcomes.
    pub outcomes: Arc<[Commit]>,
    /// Claims of which nothing is left, to be forgotten.
    pub closed: Vec<ClaimNumber>,
    /// The number under which the [`Transition::Ahead`] of this commit are claimed again; never used before by this
    /// worker. Needed when there is one.
    pub ahead: Option<ClaimNumber>,
    /// What to do about rows that another transaction holds.
    pub patience: Patience,
}

impl CommitRequest {
    /// A commit that waits for nobody and runs nothing ahead.
    pub fn new(worker: WorkerId, outcomes: impl Into<Arc<[Commit]>>, closed: Vec<ClaimNumber>) -> Self {
        Self {
            worker,
            outcomes: outcomes.into(),
            closed,
            ahead: None,
            patience: Patience::Skip,
        }
    }
}

/// What a commit does about rows that another transaction holds (rule OUT-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Patience {
    /// Answers [`CommitFate::Locked`] at once.
    Skip,
    /// Takes its turn, but waits no longer than a moment; then nothing at all is committed, and the answer is
    /// [`StoreError::Transient`]. For what was skipped before, so that a row that is always busy is had one day.
    Wait,
}

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// What became of each outcome, in the caller's order.
    pub fates: Vec<CommitFate>,
    /// The queues of parents that it woke. In order, each once.
    pub woken: Vec<QueueName>,
    /// The concurrency keys without a gate that it freed, and that others wait for.
    pub freed: Vec<ConcurrencyKey>,
}

/// A transaction that a step has opened in the store's own database, and that is committed with the outcome of the
/// step: both or neither (rule OPS-8). A store's crate makes one, `durable-pg` from a `sqlx` transaction.
#[async_trait]
pub trait OutcomeTransaction: Send {
    /// Commits the outcome in the transaction, and the transaction with it, if the claim still stands; else rolls
    /// it back. The guard comes last, so that nothing of the engine waits on what the step did.
    async fn commit(self: Box<Self>, worker: WorkerId, outcome: Commit) -> Result<Committed, StoreError>;
}

/// What became of one outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitFate {
    /// It stands.
    Committed,
    /// The claim was lost before; nothing was changed (rule CLAIM-4).
    Stale,
    /// Another transaction holds the row, or that of the parent, whose join it counts towards; nothing was changed,
    /// commit it again soon (rule OUT-6).
    Locked,
    /// The claim stands, but the instance must end cancelled: nothing was changed, commit
    /// [`Transition::Cancelled`] instead (rule CANCEL-1).
    CancelRequested,
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
