//! What an operator does to instances: cancel, restart, wake.

use std::collections::BTreeSet;

use super::{Client, no_answer};
use crate::error::{Failure, FailureKind, StoreError};
use crate::store::{Operation, OperationFate, Target};
use crate::types::InstanceId;

/// How many instances of a tree are cancelled in one call.
const BATCH: usize = 500;

fn cancellation(reason: impl Into<String>) -> Operation {
    Operation::Cancel {
        failure: Failure::new(FailureKind::Cancelled, reason),
    }
}

/// Each of these may be repeated, and says what it did. A target is an id, or a correlation key
/// ([`Target::key`]).
impl Client {
    /// Ends an instance as cancelled, for a reason. One that does not execute ends at once
    /// ([`OperationFate::Applied`]). One that executes ends as soon as its step does, whatever that returns
    /// ([`OperationFate::Requested`]); the step is told, through
    /// [`Context::stopping`](crate::Context::stopping). Its children go on; see
    /// [`cancel_with_children`](Self::cancel_with_children).
    ///
    /// # Errors
    /// The store's.
    pub async fn cancel(
        &self,
        target: impl Into<Target>,
        reason: impl Into<String>,
    ) -> Result<OperationFate, StoreError> {
        self.operate_on(target, cancellation(reason)).await
    }

    /// Cancels many instances in one call; the answers stand in the caller's order.
    ///
    /// # Errors
    /// The store's; then none was cancelled, save after [`StoreError::Unknown`].
    pub async fn cancel_all(
        &self,
        targets: Vec<Target>,
        reason: impl Into<String>,
    ) -> Result<Vec<OperationFate>, StoreError> {
        self.operate(targets, cancellation(reason)).await
    }

    /// Cancels an instance, then its children that are not finished, then theirs, level by level until there are no
    /// more. The parent comes first, so that it schedules no more of them. The answers: that of the target first.
    ///
    /// # Errors
    /// The store's. What was cancelled by then stays so; call it again for the rest, also when the target is
    /// cancelled already.
    pub async fn cancel_with_children(
        &self,
        target: impl Into<Target>,
        reason: impl Into<String>,
    ) -> Result<Vec<OperationFate>, StoreError> {
        let operation = cancellation(reason);
        let mut fates = vec![self.operate_on(target, operation.clone()).await?];
        let mut level: Vec<InstanceId> = fates.iter().filter_map(|fate| fate.id()).collect();
        let mut seen: BTreeSet<InstanceId> = level.iter().copied().collect();
        while !level.is_empty() {
            let mut children = self.store.unfinished_children(level).await?;
            children.retain(|child| seen.insert(*child));
            for batch in children.chunks(BATCH) {
                let targets = batch.iter().copied().map(Target::Id).collect();
                fates.extend(self.operate(targets, operation.clone()).await?);
            }
            level = children;
        }
        Ok(fates)
    }

    /// Makes an instance that waits for its time, of a retry say, due now.
    ///
    /// # Errors
    /// The store's.
    pub async fn retry_now(&self, target: impl Into<Target>) -> Result<OperationFate, StoreError> {
        self.operate_on(target, Operation::RetryNow).await
    }

    /// Wakes a parked instance, as if what it waits for had come. Its step finds no signal, or children that are not
    /// finished.
    ///
    /// # Errors
    /// The store's.
    pub async fn wake(&self, target: impl Into<Target>) -> Result<OperationFate, StoreError> {
        self.operate_on(target, Operation::Wake).await
    }

    /// Fires the deadline of a parked instance now; one without a deadline is left alone. For operators, and for tests
    /// that do not want to wait.
    ///
    /// # Errors
    /// The store's.
    pub async fn fire_deadline(&self, target: impl Into<Target>) -> Result<OperationFate, StoreError> {
        self.operate_on(target, Operation::FireDeadline).await
    }

    /// Runs a failed or cancelled instance again, from its last step and state, attempt 0. If it had a correlation key
    /// it takes it again, or the answer is [`OperationFate::Duplicate`] when another instance has it by now. It never
    /// counts a second time towards its parent's join.
    ///
    /// # Errors
    /// The store's.
    pub async fn restart(&self, target: impl Into<Target>) -> Result<OperationFate, StoreError> {
        self.operate_on(target, Operation::Restart).await
    }

    async fn operate_on(
        &self,
        target: impl Into<Target>,
        operation: Operation,
    ) -> Result<OperationFate, StoreError> {
        let fates = self.operate(vec![target.into()], operation).await?;
        fates.into_iter().next().ok_or_else(|| no_answer("an operation"))
    }

    async fn operate(
        &self,
        targets: Vec<Target>,
        operation: Operation,
    ) -> Result<Vec<OperationFate>, StoreError> {
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let cancels = matches!(operation, Operation::Cancel { .. });
        let operated = self.store.operate(targets, operation).await?;
        for fate in &operated.fates {
            match fate {
                OperationFate::Applied(id) if cancels => self.local.waiters.changed(*id),
                OperationFate::Requested(id) => self.local.cancel(*id),
                _ => {}
            }
        }
        operated.woken.iter().for_each(|queue| self.local.poke(queue));
        Ok(operated.fates)
    }
}

impl OperationFate {
    /// The instance that it is about; `None` when there is none.
    #[must_use]
    pub const fn id(self) -> Option<InstanceId> {
        match self {
            Self::Applied(id) | Self::Requested(id) | Self::Unchanged(id, _) => Some(id),
            // The holder of the key is another instance.
            Self::Duplicate(_) | Self::NotFound => None,
        }
    }
}
