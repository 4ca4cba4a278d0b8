//! The collector.

use std::time::Duration;

use durable_core::store::{Collected, Retention};
use durable_core::{InstanceId, Status};

use super::{Locked, Row, State};

impl State {
    pub(in crate::memory) fn collect(
        &mut self,
        now: Duration,
        retention: Retention,
        limit: usize,
        locked: &Locked,
    ) -> Collected {
        let kept = |status| match status {
            Status::Done => Some(retention.done),
            Status::Failed => Some(retention.failed),
            Status::Cancelled => Some(retention.cancelled),
            _ => None,
        };
        let expired = |row: &Row| kept(row.status).is_some_and(|kept| now - row.finished >= kept);
        let rows = self
            .instances
            .iter()
            .filter(|(id, row)| expired(row) && !self.may_be_read(row) && !locked.contains(id));
        let mut gone: Vec<InstanceId> = rows.map(|(id, _)| *id).collect();
        let more = gone.len() > limit;
        gone.truncate(limit);
        let mut collected = Collected { instances: 0, more };
        for id in gone {
            if let Some((key, _)) = self.instances.remove(&id).and_then(|row| row.correlation) {
                self.keys.remove(&key);
            }
            collected.instances += 1;
        }
        collected
    }

    /// Whether a parent that is not terminal may still want to see it (rule CHILD-4).
    fn may_be_read(&self, row: &Row) -> bool {
        let parent = row.parent.and_then(|(parent, _)| self.instances.get(&parent));
        parent.is_some_and(|parent| !parent.status.is_terminal())
    }
}
