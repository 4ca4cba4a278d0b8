//! What the engines and clients of one store share within one process: pokes, waiters, running steps, alarms, and
//! engine names.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::expirer::Alarms;
use super::running::Running;
use super::waiters::Waiters;
use crate::types::QueueName;

/// One per store and process.
#[derive(Default)]
pub(crate) struct Local {
    queues: Mutex<HashMap<QueueName, Vec<Weak<Notify>>>>,
    names: Mutex<HashSet<String>>,
    pub(crate) waiters: Waiters,
    pub(crate) running: Running,
    pub(crate) alarms: Alarms,
}

/// A lock whose holder panicked is taken all the same: every change under these locks is one map operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Local {
    /// The one that belongs to a store.
    pub(crate) fn of(identity: &str) -> Arc<Self> {
        static ALL: LazyLock<Mutex<HashMap<String, Weak<Local>>>> = LazyLock::new(Mutex::default);
        let mut all = lock(&ALL);
        if let Some(local) = all.get(identity).and_then(Weak::upgrade) {
            return local;
        }
        all.retain(|_, local| local.strong_count() > 0);
        let local = Arc::new(Self::default());
        all.insert(identity.to_owned(), Arc::downgrade(&local));
        local
    }

    /// What wakes one more scheduler of a queue, for as long as it is held. Pokes that come while the
    /// scheduler is awake are one poke.
    pub(crate) fn queue(&self, queue: &QueueName) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        let mut queues = lock(&self.queues);
        let schedulers = queues.entry(queue.clone()).or_default();
        schedulers.retain(|scheduler| scheduler.strong_count() > 0);
        schedulers.push(Arc::downgrade(&notify));
        notify
    }

    /// Tells every scheduler of a queue that it has work: one of them may be full.
    pub(crate) fn poke(&self, queue: &QueueName) {
        if let Some(schedulers) = lock(&self.queues).get(queue) {
            schedulers
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|notify| notify.notify_one());
        }
    }

    /// Tells every scheduler that there may be work.
    pub(crate) fn poke_all(&self) {
        for schedulers in lock(&self.queues).values() {
            schedulers
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|notify| notify.notify_one());
        }
    }

    /// Takes an engine name; `false` when it is taken.
    pub(crate) fn take_name(&self, name: &str) -> bool {
        lock(&self.names).insert(name.to_owned())
    }

    /// Frees an engine name.
    pub(crate) fn free_name(&self, name: &str) {
        lock(&self.names).remove(name);
    }
}
