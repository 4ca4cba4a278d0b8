//! What follows the fate of an outcome: slots, pokes, waiters, and another try for what did not stand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::finished::Finished;
use super::limits::Limits;
use super::local::Local;
use super::slots::free_together;
use crate::error::{Failure, FailureKind};
use crate::observe;
use crate::registry::Ran;
use crate::store::{CommitFate, Eligible, NewInstance, Store, Transition};
use crate::types::{ClaimNumber, QueueName};

/// Ends what is settled, and sends back what is not. The lanes hold it, so it must not keep them alive.
pub(crate) struct Settler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) local: Arc<Local>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) group: mpsc::WeakUnboundedSender<Finished>,
    pub(crate) patient: mpsc::WeakUnboundedSender<Finished>,
}

/// Where the outcomes of one commit made work.
#[derive(Default)]
struct Found {
    /// In queues that this process serves, with room for it: nobody else need be told.
    here: BTreeSet<QueueName>,
    /// Which others should know of, and in how much time.
    everywhere: BTreeMap<QueueName, Duration>,
}

impl Found {
    fn here(&mut self, queue: &QueueName) {
        if !self.here.contains(queue) {
            self.here.insert(queue.clone());
        }
    }

    fn later(&mut self, queue: &QueueName, delay: Duration) {
        match self.everywhere.get_mut(queue) {
            Some(first) => *first = delay.min(*first),
            None => {
                self.everywhere.insert(queue.clone(), delay);
            }
        }
    }

    fn elsewhere(&mut self, child: &NewInstance) {
        let delay = match child.eligible {
            Eligible::In(delay) => delay,
            Eligible::At(_) => Duration::ZERO,
        };
        self.later(&child.queue, delay);
    }

    fn tell(self, local: &Local) {
        self.here.iter().for_each(|queue| local.ring(queue));
        for (queue, delay) in self.everywhere {
            local.poke_in(&queue, delay);
        }
    }
}

/// What is left of a batch after its fates are known.
#[derive(Default)]
pub(crate) struct Left {
    /// Another transaction holds the row.
    pub(crate) locked: Vec<Finished>,
    /// Not committed, the claim stands.
    pub(crate) open: Vec<Finished>,
}

impl Settler {
    /// Ends the outcomes of one commit, whose aheads are claimed under a number.
    pub(crate) fn settle(
        &self,
        batch: Vec<Finished>,
        fates: Vec<Option<CommitFate>>,
        ahead: Option<ClaimNumber>,
    ) -> Left {
        let mut left = Left::default();
        let mut slots = Vec::new();
        let mut pokes = Found::default();
        for (finished, fate) in batch.into_iter().zip(fates) {
            if let Some(fate) = fate {
                observe::outcome(&finished.work.context.machine, &finished.transition, fate);
            }
            match fate {
                None => left.open.push(finished),
                Some(CommitFate::Locked) => left.locked.push(finished),
                Some(CommitFate::CancelRequested) => self.cancel(finished),
                Some(fate) => {
                    finished.worker.claims.settle(finished.work.instance.fence.claim);
                    if fate == CommitFate::Committed {
                        self.announce(&finished, &mut pokes);
                        if let (Transition::Ahead { .. }, Some(number)) = (&finished.transition, ahead) {
                            finished.go_on(number);
                            continue;
                        }
                    }
                    // The permit of a gate goes back here, as the step is over.
                    slots.push(finished.held.slot);
                }
            }
        }
        free_together(slots);
        // After the slots are free, so that the claim finds room.
        pokes.tell(&self.local);
        left
    }

    /// Tells this process what an outcome that stands has changed.
    fn announce(&self, finished: &Finished, pokes: &mut Found) {
        let mut timeout = None;
        match &finished.transition {
            Transition::Ahead { .. } => return,
            Transition::Blocked { look_in, .. } => {
                self.limits.look_at(Instant::now() + *look_in);
                return;
            }
            Transition::Done { .. } | Transition::Failed { .. } | Transition::Cancelled { .. } => {
                self.local.waiters.changed(finished.work.instance.id);
                return;
            }
            Transition::Await { timeout: limit, .. } => timeout = *limit,
            Transition::ScheduleChildren {
                children,
                timeout: limit,
                ..
            } => {
                timeout = *limit;
                children.iter().for_each(|child| pokes.elsewhere(child));
            }
            _ => {}
        }
        let parks = matches!(
            finished.transition,
            Transition::Await { .. } | Transition::ScheduleChildren { .. }
        );
        if parks {
            self.local.waiters.changed(finished.work.instance.id);
            if let Some(timeout) = timeout {
                self.local.deadline(Instant::now() + timeout);
            }
        }
        let Some(queue) = finished.held.slot.queue() else {
            return;
        };
        match &finished.transition {
            Transition::Next { delay, .. } | Transition::Retry { delay, .. } if !delay.is_zero() => {
                pokes.later(queue, *delay);
            }
            // The process stops: somebody else must take it.
            Transition::GiveBack => pokes.later(queue, Duration::ZERO),
            // This process has just got room for it. A wait too: it may have gone on at once.
            _ => pokes.here(queue),
        }
    }

    /// Offers an outcome, in the way that is right for it.
    pub(crate) fn offer(&self, finished: Finished) {
        // Keys that somebody holds may have to be waited for, which nobody else should share (rule OUT-6).
        let keyed = |transition: &Transition| {
            matches!(transition, Transition::ScheduleChildren { children, .. }
                if children.iter().any(|child| child.correlation.is_some()))
        };
        let lane = if keyed(&finished.transition) {
            &self.patient
        } else {
            &self.group
        };
        if let Some(lane) = lane.upgrade() {
            // A lane ends only after its last sender is gone.
            let _ = lane.send(finished);
        }
    }

    /// Ends an instance as cancelled, whatever its step said (rule CANCEL-1).
    pub(crate) fn cancel(&self, mut finished: Finished) {
        finished.becomes(Transition::cancelled());
        self.offer(finished);
    }

    /// Asks the error handler what follows an outcome that the store refused. If that is refused too, the
    /// instance fails, with a message that is always storable.
    pub(crate) fn refuse(self: &Arc<Self>, mut finished: Finished, message: &str) {
        observe::refused(&finished.work.context.machine);
        finished.leave();
        finished.refused += 1;
        let text = format!("the store refused the outcome: {message}");
        let failure = Failure::new(FailureKind::Encoding, text);
        let settler = Arc::clone(self);
        tokio::spawn(async move {
            let ran = if finished.refused == 1 {
                finished.handler.handle(Arc::clone(&finished.work), failure).await
            } else {
                Ran::from(Transition::Failed { failure })
            };
            let limits = ran
                .limits
                .and_then(|change| change.of(&finished.work.instance.limits));
            finished.becomes(ran.transition);
            finished.limits = limits;
            match ran.transaction {
                Some(transaction) => settler.commit_in(transaction, finished).await,
                None => settler.offer(finished),
            }
        });
    }
}
