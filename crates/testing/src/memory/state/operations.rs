//! What operators do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use durable_core::store::{Operated, Operation, OperationFate, Target};
use durable_core::{Failure, InstanceId, Status, StoreError};

use super::outcome::End;
use super::signals::held_too_long;
use super::{Locked, State, Woken};

impl State {
    pub(in crate::memory) fn operate(
        &mut self,
        now: Duration,
        targets: &[Target],
        operation: &Operation,
        locked: &Locked,
    ) -> Result<Operated, StoreError> {
        let ids: Vec<Option<InstanceId>> = targets.iter().map(|target| self.target(target)).collect();
        let each: BTreeSet<InstanceId> = ids.iter().copied().flatten().collect();
        let cancels = matches!(operation, Operation::Cancel { .. });
        for id in &each {
            let parent = self.instances.get(id).and_then(|row| row.parent);
            let held = self.instances.contains_key(id) && locked.contains(id);
            if held || (cancels && self.holds_parent(parent, locked)) {
                return Err(held_too_long());
            }
        }
        let mut woken = Woken::new();
        let fates: BTreeMap<InstanceId, OperationFate> = each
            .into_iter()
            .map(|id| (id, self.operate_one(now, id, operation, &mut woken)))
            .collect();
        let fate = |id: Option<InstanceId>| id.and_then(|id| fates.get(&id).copied());
        Ok(Operated {
            fates: ids
                .into_iter()
                .map(|id| fate(id).unwrap_or(OperationFate::NotFound))
                .collect(),
            woken: woken.into_iter().collect(),
        })
    }

    fn operate_one(
        &mut self,
        now: Duration,
        id: InstanceId,
        operation: &Operation,
        woken: &mut Woken,
    ) -> OperationFate {
        let Some(row) = self.instances.get(&id) else {
            return OperationFate::NotFound;
        };
        let unchanged = OperationFate::Unchanged(id, row.status);
        match operation {
            Operation::Cancel { .. } if row.status.is_terminal() => return unchanged,
            Operation::Cancel { failure } => return self.cancel(now, id, failure, woken),
            Operation::RetryNow if row.status == Status::Runnable && row.eligible > now => {
                self.retry_now(now, id, woken);
            }
            Operation::Wake if row.is_parked() => self.wake(now, id, false, woken),
            Operation::FireDeadline if row.deadline.is_some() => self.wake(now, id, true, woken),
            Operation::Restart if matches!(row.status, Status::Failed | Status::Cancelled) => {
                return self.restart(now, id, woken);
            }
            Operation::RetryNow | Operation::Wake | Operation::FireDeadline | Operation::Restart => {
                return unchanged;
            }
            // `Operation` is non-exhaustive outside its crate; the model must learn a new one first.
            other => unreachable!("the model does not know the operation {other:?}"),
        }
        OperationFate::Applied(id)
    }

    /// Ends what does not execute; what executes must end so (rule CANCEL-1).
    fn cancel(
        &mut self,
        now: Duration,
        id: InstanceId,
        failure: &Failure,
        woken: &mut Woken,
    ) -> OperationFate {
        let Some(row) = self.instances.get_mut(&id) else {
            return OperationFate::NotFound;
        };
        if row.status == Status::Executing {
            row.cancellation.get_or_insert_with(|| failure.clone());
            return OperationFate::Requested(id);
        }
        row.renumber();
        self.end(now, id, End::Cancelled(failure.clone()), woken);
        OperationFate::Applied(id)
    }

    fn retry_now(&mut self, now: Duration, id: InstanceId, woken: &mut Woken) {
        if let Some(row) = self.instances.get_mut(&id) {
            row.eligible = now;
            woken.insert(row.queue.clone());
        }
    }

    /// The last step again, from the beginning; the key is taken again, if it is free (rules CANCEL-3, ID-2).
    fn restart(&mut self, now: Duration, id: InstanceId, woken: &mut Woken) -> OperationFate {
        let Some(row) = self.instances.get_mut(&id) else {
            return OperationFate::NotFound;
        };
        if let Some((key, _)) = &row.known_key {
            match self.keys.get(key) {
                Some(holder) if *holder != id => return OperationFate::Duplicate(*holder),
                _ => self.keys.insert(key.clone(), id),
            };
        }
        row.correlation.clone_from(&row.known_key);
        row.renumber();
        (row.attempt, row.crashes, row.result) = (0, 0, None);
        row.eligible = now;
        woken.insert(row.queue.clone());
        self.enter(id, Status::Runnable);
        OperationFate::Applied(id)
    }
}
