//! Workers and their leases.

use std::collections::BTreeSet;
use std::time::Duration;

use durable_core::store::{Beat, NewWorker, Survey};
use durable_core::{MachineKey, ProcessIdentity, QueueName, Status, WorkerId};

use super::{Row, State, Worker};

impl State {
    pub(in crate::memory) fn register(&mut self, now: Duration, worker: NewWorker) -> WorkerId {
        self.last_worker += 1;
        let id = WorkerId::new(self.last_worker);
        let lease_end = now.saturating_add(worker.lease);
        self.workers.insert(
            id,
            Worker {
                lease_end,
                dead: false,
                process: worker.process,
                roles: worker.roles,
            },
        );
        id
    }

    pub(in crate::memory) fn survey(
        &self,
        now: Duration,
        queues: &[QueueName],
        machines: &[MachineKey],
    ) -> Survey {
        let alive = || {
            self.workers
                .values()
                .filter(|row| !row.dead && row.lease_end > now)
        };
        let ready = |row: &&Row| row.status == Status::Runnable && row.eligible <= now;
        let unknown: BTreeSet<_> = self
            .instances
            .values()
            .filter(ready)
            .filter(|row| queues.contains(&row.queue) && !machines.contains(&row.machine))
            .map(|row| (row.queue.clone(), row.machine.clone()))
            .collect();
        Survey {
            reaper: alive().any(|row| row.roles.reaper),
            collector: alive().any(|row| row.roles.collector),
            unknown: unknown.into_iter().collect(),
        }
    }

    pub(in crate::memory) fn beat(&mut self, now: Duration, worker: WorkerId, lease: Duration) -> Beat {
        match self.workers.get_mut(&worker) {
            Some(row) if !row.dead => row.lease_end = now.saturating_add(lease),
            _ => return Beat::Dead,
        }
        let cancelled = self
            .instances
            .iter()
            .filter(|(_, row)| row.cancellation.is_some());
        Beat::Alive {
            claims: self.claims_of(worker),
            cancelled: cancelled.map(|(id, _)| *id).collect(),
        }
    }

    pub(in crate::memory) fn retire(&mut self, worker: WorkerId) {
        if self.claims_of(worker).is_empty() {
            self.workers.remove(&worker);
        }
    }

    pub(in crate::memory) fn declare_dead(&mut self, workers: &[WorkerId]) {
        for worker in workers {
            if let Some(row) = self.workers.get_mut(worker) {
                row.dead = true;
            }
        }
    }

    pub(in crate::memory) fn neighbours(
        &self,
        process: &ProcessIdentity,
    ) -> Vec<(WorkerId, ProcessIdentity)> {
        let live = self.workers.iter().filter(|(_, row)| !row.dead);
        live.filter_map(|(id, row)| Some((*id, row.process.clone()?)))
            .filter(|(_, other)| process.shares_process_table(other))
            .collect()
    }
}
