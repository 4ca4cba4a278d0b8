//! Commits: which outcomes stand, and what becomes of their claims.

use std::collections::BTreeSet;
use std::time::Duration;

use durable_core::store::{
    Commit, CommitFate, CommitRequest, Committed, NewInstance, Patience, Resolution, Transition,
};
use durable_core::{ClaimNumber, ConcurrencyKey, Fence, InstanceId, Status, StoreError, WorkerId};

use super::outcome::FanOut;
use super::{Claim, Held, Locked, State, Woken};

impl State {
    pub(in crate::memory) fn commit(
        &mut self,
        now: Duration,
        request: &CommitRequest,
        locked: &Locked,
    ) -> Result<Committed, StoreError> {
        self.check(request, locked)?;
        let (mut woken, mut ahead, mut fan_outs) = (Woken::new(), Claim::new(), Vec::new());
        let mut freed = BTreeSet::new();
        let mut fates = Vec::with_capacity(request.outcomes.len());
        for commit in request.outcomes.iter() {
            let fate = self.fate(request.worker, commit, locked);
            if fate == CommitFate::Committed {
                self.settle(request.worker, commit);
                let held = self
                    .instances
                    .get(&commit.id)
                    .and_then(|row| row.limits.concurrency.clone());
                fan_outs.extend(self.write(now, commit, &mut woken));
                let now_has = self
                    .instances
                    .get(&commit.id)
                    .and_then(|row| row.limits.concurrency.clone());
                let keeps = matches!(commit.transition, Transition::Ahead { .. }) && held == now_has;
                freed.extend(self.free_key(commit.id, held.filter(|_| !keeps)));
                ahead.extend(self.kept(commit));
            }
            fates.push(fate);
        }
        self.fan_out(now, fan_outs);
        // A claim with an outcome that was set aside is kept, for when it is committed again (rule OUT-6).
        for number in &request.closed {
            let over = |claim: &Claim| claim.values().all(|held| held.committed);
            if self.claims.get(&(request.worker, *number)).is_some_and(over) {
                self.claims.remove(&(request.worker, *number));
            }
        }
        if let Some(number) = request.ahead.filter(|_| !ahead.is_empty()) {
            self.claims.insert((request.worker, number), ahead);
        }
        Ok(Committed {
            fates,
            woken: woken.into_iter().collect(),
            freed: freed.into_iter().collect(),
        })
    }

    /// What makes the whole request fail.
    fn check(&self, request: &CommitRequest, locked: &Locked) -> Result<(), StoreError> {
        let fatal = |message: String| Err(StoreError::Fatal { message });
        let ending = |id: &InstanceId| request.outcomes.iter().any(|it| it.id == *id);
        for number in &request.closed {
            let claim = self.claims.get(&(request.worker, *number));
            let mut left = claim.into_iter().flatten().filter(|(_, held)| !held.committed);
            if let Some((id, _)) = left.find(|(id, _)| !ending(id)) {
                return fatal(format!(
                    "claim {number:?} is closed while it still holds instance {id}"
                ));
            }
        }
        let runs_ahead = |it: &Commit| matches!(it.transition, Transition::Ahead { .. });
        if request.outcomes.iter().any(runs_ahead) {
            match request.ahead {
                None => {
                    return fatal("an outcome runs ahead, and no claim number is given for it".to_owned());
                }
                Some(number) if self.claims.contains_key(&(request.worker, number)) => {
                    return fatal(format!("claim {number:?} of worker {} is open", request.worker));
                }
                Some(_) => {}
            }
        }
        let is_locked = |it: &Commit| self.fate(request.worker, it, locked) == CommitFate::Locked;
        if request.patience == Patience::Wait && request.outcomes.iter().any(is_locked) {
            let message = "another transaction holds a row for too long".to_owned();
            return Err(StoreError::Transient { message });
        }
        Ok(())
    }

    /// What becomes of an outcome if it is tried now.
    fn fate(&self, worker: WorkerId, commit: &Commit, locked: &Locked) -> CommitFate {
        let claim = self.claims.get(&(worker, commit.fence.claim));
        let held = claim.and_then(|claim| claim.get(&commit.id));
        let row = self.instances.get(&commit.id);
        let (Some(held), Some(row)) = (held, row) else {
            return CommitFate::Stale;
        };
        if held.committed || held.seq != commit.fence.seq {
            return CommitFate::Stale;
        }
        let joins = row.parent.filter(|_| commit.transition.is_terminal());
        if locked.contains(&commit.id) || self.holds_parent(joins, locked) {
            return CommitFate::Locked;
        }
        if row.cancellation.is_some() && !matches!(commit.transition, Transition::Cancelled { .. }) {
            return CommitFate::CancelRequested;
        }
        CommitFate::Committed
    }

    /// Whether another transaction holds the parent, if it is there at all.
    pub(super) fn holds_parent(&self, parent: Option<(InstanceId, u32)>, locked: &Locked) -> bool {
        parent.is_some_and(|(id, _)| locked.contains(&id) && self.instances.contains_key(&id))
    }

    fn settle(&mut self, worker: WorkerId, commit: &Commit) {
        let claim = self.claims.get_mut(&(worker, commit.fence.claim));
        if let Some(held) = claim.and_then(|claim| claim.get_mut(&commit.id)) {
            held.committed = true;
        }
    }

    /// What the worker keeps of an outcome that runs ahead (rule RUN-1).
    fn kept(&self, commit: &Commit) -> Option<(InstanceId, Held)> {
        let row = self.instances.get(&commit.id)?;
        let held = Held {
            seq: row.seq,
            committed: false,
        };
        matches!(commit.transition, Transition::Ahead { .. }).then_some((commit.id, held))
    }

    /// Inserts the children of what was committed, after all else of the commit; then each parent parks, or goes on when
    /// there is nobody to wait for (rule CHILD-1).
    fn fan_out(&mut self, now: Duration, fan_outs: Vec<FanOut>) {
        let mut parents = Vec::new();
        for FanOut {
            parent,
            number,
            children,
            needed,
        } in fan_outs
        {
            let inserted = self.insert_children(now, children, (parent, number));
            parents.push((parent, needed.map_or(inserted, |needed| needed.min(inserted))));
        }
        for (id, left) in parents {
            let Some(row) = self.instances.get_mut(&id) else {
                continue;
            };
            row.left = left;
            if left == 0 {
                row.deadline = None;
                self.enter(id, Status::Runnable);
            } else {
                self.enter(id, Status::AwaitingChildren);
            }
        }
    }

    /// How many were inserted.
    fn insert_children(
        &mut self,
        now: Duration,
        children: Vec<NewInstance>,
        parent: (InstanceId, u32),
    ) -> u32 {
        let mut inserted = 0;
        for child in children {
            if !self.insert_one(now, child, Some(parent)).is_duplicate() {
                inserted += 1;
            }
        }
        inserted
    }

    pub(in crate::memory) fn resolve(&self, worker: WorkerId, id: InstanceId, fence: Fence) -> Resolution {
        match self
            .claims
            .get(&(worker, fence.claim))
            .and_then(|claim| claim.get(&id))
        {
            Some(held) if held.seq != fence.seq => Resolution::Lost,
            Some(held) if held.committed => Resolution::Committed,
            Some(_) => Resolution::NotCommitted,
            None => Resolution::Lost,
        }
    }

    /// What another transaction holds stays behind in its claim, for the next time.
    pub(in crate::memory) fn release(
        &mut self,
        worker: WorkerId,
        number: ClaimNumber,
        locked: &Locked,
    ) -> Vec<ConcurrencyKey> {
        let claim = self.claims.remove(&(worker, number)).unwrap_or_default();
        let left = claim.into_iter().filter(|(_, held)| !held.committed);
        let (behind, free): (Claim, _) = left.partition(|(id, _)| locked.contains(id));
        if !behind.is_empty() {
            self.claims.insert((worker, number), behind);
        }
        let mut freed = Vec::new();
        for id in free.into_keys() {
            self.give_back(id, &mut freed);
        }
        freed
    }
}
