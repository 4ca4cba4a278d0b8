//! Work that comes back: given back by its worker, or taken back from a dead one.

use std::collections::BTreeSet;
use std::time::Duration;

use durable_core::store::Reaped;
use durable_core::{ClaimNumber, ConcurrencyKey, InstanceId, Status, WorkerId};

use super::{Locked, Row, State};

impl State {
    /// Back to runnable, as it was, under a new fencing number.
    /// A key that it frees, and that others wait for, is added to `freed`.
    pub(super) fn give_back(&mut self, id: InstanceId, freed: &mut Vec<ConcurrencyKey>) -> Option<&mut Row> {
        self.enter(id, Status::Runnable);
        let key = self
            .instances
            .get(&id)
            .and_then(|row| row.limits.concurrency.clone());
        freed.extend(self.free_key(id, key));
        let row = self.instances.get_mut(&id)?;
        row.renumber();
        Some(row)
    }

    pub(in crate::memory) fn reap(&mut self, now: Duration, limit: usize, locked: &Locked) -> Reaped {
        let mut reaped = Reaped::default();
        for row in self
            .workers
            .values_mut()
            .filter(|row| !row.dead && row.lease_end <= now)
        {
            row.dead = true;
            reaped.workers += 1;
        }
        let dead: BTreeSet<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, row)| row.dead)
            .map(|(id, _)| *id)
            .collect();

        let mut lost: Vec<(InstanceId, (WorkerId, ClaimNumber))> = Vec::new();
        for (key, claim) in self.claims.iter().filter(|(key, _)| dead.contains(&key.0)) {
            let held = claim
                .iter()
                .filter(|(id, held)| !held.committed && !locked.contains(id));
            lost.extend(held.map(|(id, _)| (*id, *key)));
        }
        lost.sort_unstable();
        reaped.more = lost.len() > limit;
        lost.truncate(limit);
        for (id, key) in lost {
            if let Some(claim) = self.claims.get_mut(&key) {
                claim.remove(&id);
            }
            if let Some(row) = self.give_back(id, &mut reaped.freed) {
                row.attempt = row.attempt.saturating_add(1);
                row.crashes = row.crashes.saturating_add(1);
            }
            reaped.instances += 1;
        }
        self.claims.retain(|(worker, _), claim| {
            !dead.contains(worker) || claim.values().any(|held| !held.committed)
        });
        for worker in dead {
            self.retire(worker);
        }
        reaped
    }
}
