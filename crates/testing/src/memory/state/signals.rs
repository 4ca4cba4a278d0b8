//! Signals and deadlines: what wakes those who are parked.

use std::time::Duration;

use durable_core::store::{Delivered, Expired, NewSignal, Signal, Target};
use durable_core::{InstanceId, SignalFate, Status, StoreError};

use super::{Locked, Row, State, Woken};

impl State {
    pub(in crate::memory) fn deliver(
        &mut self,
        now: Duration,
        signals: Vec<NewSignal>,
        locked: &Locked,
    ) -> Result<Delivered, StoreError> {
        for signal in &signals {
            if self.target(&signal.target).is_some_and(|id| locked.contains(&id)) {
                return Err(held_too_long());
            }
        }
        let mut woken = Woken::new();
        let fates = signals
            .into_iter()
            .map(|signal| self.deliver_one(now, signal, &mut woken))
            .collect();
        Ok(Delivered {
            fates,
            woken: woken.into_iter().collect(),
        })
    }

    /// The instance that a target stands for; one that is named by its id may be missing.
    pub(super) fn target(&self, target: &Target) -> Option<InstanceId> {
        match target {
            Target::Id(id) => Some(*id),
            Target::Key(key) => self.keys.get(key).copied(),
        }
    }

    fn deliver_one(&mut self, now: Duration, signal: NewSignal, woken: &mut Woken) -> SignalFate {
        let target = self.target(&signal.target);
        let Some((id, row)) = target.and_then(|id| Some((id, self.instances.get_mut(&id)?))) else {
            return SignalFate::NoTarget;
        };
        if row.status.is_terminal() {
            return SignalFate::NoTarget;
        }
        if let Some(key) = signal.deduplication_key
            && !row.used.insert(key)
        {
            return SignalFate::Duplicate(id);
        }
        row.received = row.received.saturating_add(1);
        let wakes = row.status == Status::AwaitingSignal && row.awaited.contains(&signal.name);
        row.inbox.push(Signal {
            number: row.received,
            name: signal.name,
            payload: signal.payload,
        });
        if wakes {
            self.wake(now, id, false, woken);
        }
        SignalFate::Stored(id)
    }

    pub(in crate::memory) fn expire(&mut self, now: Duration, limit: usize, locked: &Locked) -> Expired {
        let deadline = |(id, row): (&InstanceId, &Row)| row.deadline.map(|deadline| (deadline, *id));
        let (mut due, later): (Vec<_>, Vec<_>) = self
            .instances
            .iter()
            .filter_map(deadline)
            .partition(|(deadline, _)| *deadline <= now);
        due.retain(|(_, id)| !locked.contains(id));
        due.sort_unstable();
        let more = due.len() > limit;
        due.truncate(limit);
        let mut woken = Woken::new();
        for (_, id) in &due {
            self.wake(now, *id, true, &mut woken);
        }
        Expired {
            instances: due.len() as u64,
            woken: woken.into_iter().collect(),
            next: later.into_iter().min().map(|(deadline, _)| deadline - now),
            more,
        }
    }
}

pub(super) fn held_too_long() -> StoreError {
    StoreError::Transient {
        message: "another transaction holds a row for too long".to_owned(),
    }
}
