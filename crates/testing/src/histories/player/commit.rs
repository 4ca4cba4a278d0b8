//! Fences, and the calls that show them.

use std::fmt::Write as _;

use durable_core::store::{Commit, CommitFate, CommitRequest, Committed};
use durable_core::{ClaimNumber, Fence, InstanceId, StoreError};

use super::told::told_woken;
use super::{Given, Player};
use crate::histories::call::{Change, Outcome, Pick};
use crate::histories::vocabulary::transition;

/// Far from any number that a history uses.
const UNCLAIMED: ClaimNumber = ClaimNumber::new(1_000_000);

impl Player {
    /// The position of the fence, and the fence as it is shown to the store; nothing when there is none yet.
    fn pick(&self, worker: usize, pick: Pick) -> Option<(usize, InstanceId, Fence)> {
        let candidates: Vec<usize> = match pick {
            Pick::Any(_) => (0..self.fences.len()).collect(),
            Pick::Own(_) => (0..self.fences.len())
                .rev()
                .filter(|at| self.fences[*at].worker == worker)
                .collect(),
            _ => (0..self.fences.len())
                .filter(|at| self.fences[*at].open && self.fences[*at].worker == worker)
                .collect(),
        };
        let (Pick::Open(position)
        | Pick::Own(position)
        | Pick::Any(position)
        | Pick::Older(position)
        | Pick::Unclaimed(position)) = pick;
        let at = *candidates.get(position % candidates.len().max(1))?;
        let Given { id, mut fence, .. } = self.fences[at];
        match pick {
            Pick::Older(_) => fence.seq -= 1,
            Pick::Unclaimed(_) => fence.claim = UNCLAIMED,
            Pick::Open(_) | Pick::Own(_) | Pick::Any(_) => {}
        }
        Some((at, id, fence))
    }

    pub(super) async fn commit(
        &mut self,
        worker: usize,
        outcomes: &[Outcome],
        close: bool,
    ) -> Result<String, StoreError> {
        let picked: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| Some((self.pick(worker, outcome.pick)?, &outcome.change)))
            .collect();
        // Whether an outcome shows the fence of this worker as it is.
        let is_own = |at: usize, fence: Fence| {
            let given = &self.fences[at];
            given.worker == worker && given.fence == fence
        };
        let own: Vec<bool> = picked
            .iter()
            .map(|((at, _, fence), _)| is_own(*at, *fence))
            .collect();
        let used = |at: usize| {
            picked
                .iter()
                .zip(&own)
                .any(|(((used, ..), _), own)| *own && *used == at)
        };
        // Only what nothing is left of may be closed.
        let left = |number: ClaimNumber| {
            let held = |at: usize| self.fences[at].fence.claim == number && self.fences[at].open;
            (0..self.fences.len()).any(|at| held(at) && !used(at))
        };
        let closed = self.claims.iter().filter(|(owner, _)| close && *owner == worker);
        let closed: Vec<ClaimNumber> = closed.map(|it| it.1).filter(|number| !left(*number)).collect();
        let commits = picked
            .iter()
            .map(|((at, id, fence), change)| {
                let Given { parent, received, .. } = self.fences[*at];
                let transition = transition(change)?;
                Ok(Commit {
                    id: *id,
                    fence: *fence,
                    parent,
                    received,
                    transition,
                    limits: None,
                })
            })
            .collect::<Result<Vec<_>, StoreError>>()?;
        self.last_claim += 1;
        let ahead = ClaimNumber::new(self.last_claim);
        let request = CommitRequest {
            ahead: Some(ahead),
            ..CommitRequest::new(self.workers[worker].id, commits, closed)
        };
        let Committed { fates, woken, .. } = self.store.commit(request).await?;
        for ((fate, own), ((at, id, _), change)) in fates.iter().zip(own).zip(&picked) {
            // A claim with a requested cancellation is still open.
            if own && *fate != CommitFate::CancelRequested {
                self.fences[*at].open = false;
            }
            if *fate == CommitFate::Committed {
                match change {
                    Change::Ahead => self.went_ahead(*at, ahead),
                    Change::Await { .. } => self.parked.push(*id),
                    Change::Failed | Change::Cancelled => self.ended.push(*id),
                    Change::ScheduleChildren { .. } => {
                        self.parked.push(*id);
                        self.meet_children(*id).await?;
                    }
                    _ => {}
                }
            }
        }
        let mut said = format!("{} answers", fates.len());
        for (fate, ((_, id, _), _)) in fates.iter().zip(&picked) {
            let _ = write!(said, "\n{} {fate:?}", self.name(*id));
        }
        said.push_str(&told_woken(&woken));
        Ok(said)
    }

    /// The worker holds the instance under a new claim.
    fn went_ahead(&mut self, at: usize, number: ClaimNumber) {
        let before = self.fences[at];
        if self.claims.last() != Some(&(before.worker, number)) {
            self.claims.push((before.worker, number));
        }
        self.fences.push(Given {
            fence: Fence {
                claim: number,
                seq: before.fence.seq.wrapping_add(1),
            },
            open: true,
            ..before
        });
    }

    /// Learns of the children that were just inserted.
    async fn meet_children(&mut self, parent: InstanceId) -> Result<(), StoreError> {
        for child in self.store.unfinished_children(vec![parent]).await? {
            if !self.instances.contains(&child) {
                self.instances.push(child);
            }
        }
        Ok(())
    }

    pub(super) async fn resolve(&mut self, worker: usize, picks: &[Pick]) -> Result<String, StoreError> {
        let asked: Vec<(InstanceId, Fence)> = picks
            .iter()
            .filter_map(|pick| self.pick(worker, *pick).map(|(_, id, fence)| (id, fence)))
            .collect();
        let resolved = self.store.resolve(self.workers[worker].id, asked.clone()).await?;
        let mut said = format!("{} answers", resolved.len());
        for (resolution, (id, _)) in resolved.iter().zip(&asked) {
            let _ = write!(said, "\n{} {resolution:?}", self.name(*id));
        }
        Ok(said)
    }

    pub(super) async fn release(&mut self, worker: usize, claims: &[usize]) -> Result<String, StoreError> {
        let mut numbers = Vec::new();
        for position in claims {
            if let Some((owner, number)) = self.claims.get(position % self.claims.len().max(1)) {
                numbers.push(*number);
                if *owner == worker {
                    for given in self.fences.iter_mut().filter(|it| it.fence.claim == *number) {
                        given.open = false;
                    }
                }
            }
        }
        self.store.release(self.workers[worker].id, numbers).await?;
        Ok("ok".to_owned())
    }
}
