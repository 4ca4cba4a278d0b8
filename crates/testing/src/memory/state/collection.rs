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
        let due = |(id, row): (&InstanceId, &Row)| (expired(row) && !row.kept).then_some(*id);
        let due: Vec<InstanceId> = self.instances.iter().filter_map(due).collect();
        let mut gone = Vec::new();
        for id in due {
            match self.reader(id) {
                Some(parent) if locked.contains(&parent) => {}
                Some(_) => self.keep(id),
                None if locked.contains(&id) => {}
                None => gone.push(id),
            }
        }
        let mut more = gone.len() > limit;
        gone.truncate(limit);
        let mut collected = Collected::default();
        for id in gone {
            if let Some((key, _)) = self.instances.remove(&id).and_then(|row| row.correlation) {
                self.keys.remove(&key);
            }
            more |= self.free_children(id);
            collected.instances += 1;
        }
        collected.more = more;
        collected
    }

    /// The parent that is not terminal, and so may still want to see the child (rule CHILD-4).
    fn reader(&self, child: InstanceId) -> Option<InstanceId> {
        let (parent, _) = self.instances.get(&child)?.parent?;
        let at_work = !self.instances.get(&parent)?.status.is_terminal();
        at_work.then_some(parent)
    }

    /// Leaves a child for its parent, until the parent is removed.
    fn keep(&mut self, child: InstanceId) {
        if let Some(row) = self.instances.get_mut(&child) {
            row.kept = true;
        }
    }

    /// Whether any child was kept for the parent, which has been removed.
    fn free_children(&mut self, parent: InstanceId) -> bool {
        let mut any = false;
        for row in self.instances.values_mut() {
            if row.kept && row.parent.is_some_and(|(id, _)| id == parent) {
                row.kept = false;
                any = true;
            }
        }
        any
    }
}
