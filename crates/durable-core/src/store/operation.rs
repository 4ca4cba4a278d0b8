//! What an operator may do to an instance (rules CANCEL-1 to CANCEL-3).

use crate::error::Failure;
use crate::types::{InstanceId, QueueName, Status};

/// What an operator may do to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Ends it as cancelled: at once when it does not execute, else its worker is told, and whatever its step
    /// returns, it ends cancelled.
    Cancel {
        /// Why.
        failure: Failure,
    },
    /// Makes an instance that waits for its time (of a retry, say) due now.
    RetryNow,
    /// Wakes a parked instance, as if what it waits for had come.
    Wake,
    /// Fires the deadline of a parked instance now.
    FireDeadline,
    /// Runs a failed or cancelled instance again from its last step, attempt 0. It never counts a second time
    /// towards its parent's join.
    Restart,
}

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationFate {
    /// It is done.
    Applied(InstanceId),
    /// The instance executes; it will end cancelled as soon as its step has ended.
    Requested(InstanceId),
    /// It does not apply to an instance in this status; nothing was changed.
    Unchanged(InstanceId, Status),
    /// The instance cannot be restarted: another one holds its correlation key by now.
    Duplicate(InstanceId),
    /// The instance is not there, or nobody holds the key.
    NotFound,
}

/// What a call for operations did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operated {
    /// What became of each, in the caller's order.
    pub fates: Vec<OperationFate>,
    /// The queues in which instances became runnable. In order, each once.
    pub woken: Vec<QueueName>,
}
