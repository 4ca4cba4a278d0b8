//! Claims.

use std::time::Duration;

use durable_core::store::{ClaimRequest, Claimed, ClaimedInstance, Coordination};
use durable_core::{Child, Fence, InstanceId, MachineKey, QueueName, Status, StoreError};

use super::{Held, Locked, Row, State};

impl State {
    pub(in crate::memory) fn claim(
        &mut self,
        now: Duration,
        request: &ClaimRequest,
        locked: &Locked,
    ) -> Result<Claimed, StoreError> {
        if self.workers.get(&request.worker).is_none_or(|row| row.dead) {
            return Err(StoreError::WorkerDead);
        }
        if self.claims.contains_key(&(request.worker, request.number)) {
            let message = format!("claim {:?} of worker {} is open", request.number, request.worker);
            return Err(StoreError::Fatal { message });
        }
        let known = |row: &Row| {
            request
                .machines
                .iter()
                .position(|machine| *machine == row.machine)
        };
        let candidates = || {
            let queued = self
                .instances
                .iter()
                .filter(|(_, row)| row.queue == request.queue);
            queued.filter(|(_, row)| row.status == Status::Runnable && known(row).is_some())
        };
        let next_due = candidates()
            .map(|(_, row)| row.eligible)
            .filter(|due| *due > now)
            .min();
        let mut due: Vec<_> = candidates()
            .filter(|(id, row)| row.eligible <= now && row.waits_for.is_none() && !locked.contains(id))
            .map(|(id, row)| (row.priority, row.eligible, *id))
            .collect();
        due.sort_unstable();
        let unlimited: Vec<_> = due
            .iter()
            .filter(|(_, _, id)| self.instances.get(id).is_some_and(|row| row.limits.is_empty()))
            .take(request.limit)
            .copied()
            .collect();
        due.truncate(request.limit);
        let mut set_aside = 0;
        due.retain(|(_, _, id)| {
            let blocked = self.instances.get(id).and_then(|row| self.blocked_by(now, row));
            match blocked {
                Some(kind) => {
                    self.set_aside(now, *id, kind, None);
                    set_aside += 1;
                }
                None => self.take_key(*id),
            }
            blocked.is_none()
        });
        if due.is_empty() && set_aside > 0 {
            // Work without limits does not wait for a backlog that has them (rule LIM-7).
            due = unlimited;
        }
        let limited = |id: &InstanceId| self.instances.get(id).is_some_and(|row| !row.limits.is_empty());
        let limits_version = due
            .iter()
            .any(|(_, _, id)| limited(id))
            .then(|| self.limits_version());

        let mut claimed = Claimed {
            instances: Vec::new(),
            next_due: if set_aside > 0 {
                Some(Duration::ZERO)
            } else {
                next_due.map(|due| due - now)
            },
            set_aside,
            limits_version,
        };
        for (_, _, id) in due {
            self.enter(id, Status::Executing);
            let Some(row) = self.instances.get(&id) else {
                continue;
            };
            let Some(machine) = known(row) else { continue };
            let held = Held {
                seq: row.seq,
                committed: false,
            };
            claimed.instances.push(ClaimedInstance {
                id,
                fence: Fence {
                    claim: request.number,
                    seq: row.seq,
                },
                machine,
                step: row.step.clone(),
                state: row.state.clone(),
                attempt: row.attempt,
                crashes: row.crashes,
                visit: row.visit,
                coordination: self.coordination(id, row),
                gated: row.limits.concurrency.as_ref().is_some_and(|key| self.gated(key)),
                limits: row.limits.clone(),
            });
            self.claims
                .entry((request.worker, request.number))
                .or_default()
                .insert(id, held);
        }
        Ok(claimed)
    }

    fn coordination(&self, id: InstanceId, row: &Row) -> Coordination {
        let of_last_fan_out = |child: &Row| child.parent == Some((id, row.fan_out));
        let children = self
            .instances
            .iter()
            .filter(|(_, child)| row.children_visible && of_last_fan_out(child));
        Coordination {
            parent: row.parent.map(|(parent, _)| parent),
            received: row.received,
            awaited: row.awaited.clone(),
            inbox: row.inbox.clone(),
            children: children.map(|(id, child)| seen(*id, child)).collect(),
            deadline_fired: row.deadline_fired,
            cancel_requested: row.cancellation.is_some(),
        }
    }

    pub(in crate::memory) fn make_due(
        &mut self,
        now: Duration,
        queue: &QueueName,
        machines: &[MachineKey],
    ) -> u64 {
        let waiting = self.instances.values_mut().filter(|row| {
            row.queue == *queue
                && machines.contains(&row.machine)
                && row.status == Status::Runnable
                && row.eligible > now
        });
        waiting.map(|row| row.eligible = now).count() as u64
    }
}

/// A child as its parent's step sees it (rule CHILD-2).
fn seen(id: InstanceId, child: &Row) -> Child {
    Child {
        id,
        machine: child.machine.clone(),
        status: match child.status {
            Status::Executing => Status::Runnable,
            other => other,
        },
        result: child.result.clone(),
        failure: child.failure.clone(),
    }
}
