//! What must hold in every state of the store, whatever was called before: the invariants of a simulation.

use std::collections::BTreeMap;

use durable_core::{ClaimNumber, InstanceId, Status, WorkerId};

use super::{Claim, Row, State};
use crate::memory::Standing;

impl State {
    /// The first thing that is wrong, if anything is.
    pub(crate) fn fault(&self) -> Option<String> {
        self.claim_fault()
            .or_else(|| self.key_fault())
            .or_else(|| self.limit_fault())
            .or_else(|| {
                self.instances.iter().find_map(|(id, row)| {
                    self.row_fault(*id, row)
                        .map(|fault| format!("instance {id}: {fault}"))
                })
            })
    }

    /// An executing instance is in one open claim, under its fencing number, and nothing else is.
    fn claim_fault(&self) -> Option<String> {
        let mut held = BTreeMap::new();
        for ((worker, number), claim) in &self.claims {
            for (id, of) in claim.iter().filter(|(_, held)| !held.committed) {
                let Some(row) = self.instances.get(id) else {
                    return Some(format!(
                        "claim {number:?} of worker {worker} holds {id}, which is gone"
                    ));
                };
                if row.status != Status::Executing || row.seq != of.seq {
                    return Some(format!(
                        "claim {number:?} of worker {worker} holds {id}, which is {} under another number",
                        row.status
                    ));
                }
                if let Some(other) = held.insert(*id, worker) {
                    return Some(format!("workers {other} and {worker} both hold {id}"));
                }
            }
        }
        let lost =
            |(id, row): &(&InstanceId, &Row)| row.status == Status::Executing && !held.contains_key(id);
        let (id, _) = self.instances.iter().find(lost)?;
        Some(format!("{id} executes, and no claim holds it"))
    }

    /// A key is held by one instance, which is in the scope.
    fn key_fault(&self) -> Option<String> {
        let holds = |id: &InstanceId, key| {
            let row = self.instances.get(id)?;
            let (own, scope) = row.correlation.as_ref()?;
            (own == key && scope.contains(row.status)).then_some(())
        };
        let wrong = self.keys.iter().find(|(key, id)| holds(id, *key).is_none());
        if let Some((key, id)) = wrong {
            return Some(format!("key {key} is held by {id}, which does not know of it"));
        }
        let keys = self
            .instances
            .values()
            .filter(|row| row.correlation.is_some())
            .count();
        (keys != self.keys.len()).then(|| "an instance has a key that is not held".to_owned())
    }

    fn row_fault(&self, id: InstanceId, row: &Row) -> Option<&'static str> {
        if row.deadline.is_some() && !row.is_parked() {
            return Some("it has a deadline and does not wait");
        }
        if row.status == Status::AwaitingSignal && row.awaited.is_empty() {
            return Some("it waits for no signal");
        }
        if row.status == Status::AwaitingChildren {
            let uncounted = |child: &&Row| child.parent == Some((id, row.fan_out)) && !child.joined;
            let open = self.instances.values().filter(uncounted).count();
            if row.left == 0 {
                return Some("it waits for no child");
            }
            if (row.left as usize) > open {
                return Some("it waits for more children than can still end");
            }
        }
        if row.status.is_terminal() {
            if !row.inbox.is_empty() {
                return Some("it is terminal and has signals");
            }
            if row.cancellation.is_some() {
                return Some("it is terminal and is still to be cancelled");
            }
            if row.parent.is_some() && !row.joined {
                return Some("it is terminal and was not counted by its parent");
            }
        }
        None
    }

    /// The instances that will still do something by themselves: those that are runnable, now or later, those that
    /// execute, and those whose wait has a deadline.
    pub(crate) fn at_work(&self) -> Vec<InstanceId> {
        let at_work =
            |row: &Row| matches!(row.status, Status::Runnable | Status::Executing) || row.deadline.is_some();
        let at_work = self.instances.iter().filter(|(_, row)| at_work(row));
        at_work.map(|(id, _)| *id).collect()
    }

    /// Which claim holds each instance that executes.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (InstanceId, (WorkerId, ClaimNumber))> {
        let open = |(of, claim)| {
            let claim: &Claim = claim;
            let open = claim.iter().filter(|(_, held)| !held.committed);
            open.map(move |(id, _)| (*id, of))
        };
        self.claims.iter().flat_map(move |(of, claim)| open((*of, claim)))
    }

    pub(crate) fn knows(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker)
    }

    /// How each instance stands.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (InstanceId, Standing)> {
        self.instances.iter().map(|(id, row)| {
            let standing = Standing {
                terminal: row.status.is_terminal(),
                visit: row.visit,
            };
            (*id, standing)
        })
    }

    /// All instances.
    pub(crate) fn ids(&self) -> Vec<InstanceId> {
        self.instances.keys().copied().collect()
    }
}
