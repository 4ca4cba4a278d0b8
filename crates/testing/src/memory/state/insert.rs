//! New instances.

use std::collections::BTreeSet;
use std::time::Duration;

use durable_core::store::{Eligible, Inserted, NewInstance};
use durable_core::{InstanceId, Status};

use super::{Row, State};

impl State {
    pub(in crate::memory) fn insert(&mut self, now: Duration, entries: Vec<NewInstance>) -> Vec<Inserted> {
        entries
            .into_iter()
            .map(|entry| self.insert_one(now, entry, None))
            .collect()
    }

    /// `parent` names the parent of a child, and the fan-out that it belongs to.
    pub(super) fn insert_one(
        &mut self,
        now: Duration,
        entry: NewInstance,
        parent: Option<(InstanceId, u32)>,
    ) -> Inserted {
        let key = entry.correlation.as_ref().map(|(key, _)| key);
        if let Some(holder) = key.and_then(|key| self.keys.get(key)) {
            return Inserted::Duplicate(*holder);
        }
        self.last_instance += 1;
        let id = InstanceId::new(self.last_instance);
        if let Some(key) = key {
            self.keys.insert(key.clone(), id);
        }
        let delay = match entry.eligible {
            Eligible::In(delay) => delay,
            Eligible::At(instant) => instant.duration_since(self.began + now).unwrap_or(Duration::ZERO),
        };
        let row = Row {
            machine: entry.machine,
            queue: entry.queue,
            priority: entry.priority,
            eligible: now.saturating_add(delay),
            status: Status::Runnable,
            step: entry.step,
            state: entry.state,
            attempt: 0,
            crashes: 0,
            visit: 0,
            seq: 0,
            result: None,
            failure: None,
            correlation: entry.correlation.clone(),
            known_key: entry.correlation,
            finished: Duration::ZERO,
            received: 0,
            inbox: Vec::new(),
            used: BTreeSet::new(),
            awaited: Vec::new(),
            deadline: None,
            deadline_fired: false,
            parent,
            fan_out: 0,
            left: 0,
            children_visible: false,
            joined: false,
            kept: false,
            cancellation: None,
            limits: entry.limits,
            waits_for: None,
            recalled: false,
        };
        self.instances.insert(id, row);
        Inserted::New(id)
    }
}
