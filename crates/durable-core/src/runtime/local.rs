//! What the engines and clients of one store share within one process: pokes, waiters, running steps, alarms, and
//! engine names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::alarm::{Alarm, Alarms};
use super::doorbell::Doorbell;
use super::hub::Hubs;
use super::running::Running;
use super::waiters::Waiters;
use crate::chance;
use crate::poke::Poke;
use crate::store::Serves;
use crate::types::{InstanceId, QueueName};

/// One per store and process.
pub(crate) struct Local {
    /// What other processes know this one by.
    pub(crate) node: u64,
    queues: Mutex<BTreeMap<QueueName, Vec<Weak<Doorbell>>>>,
    names: Mutex<HashSet<String>>,
    pub(crate) waiters: Waiters,
    pub(crate) running: Running,
    pub(crate) alarms: Alarms,
    pub(crate) hubs: Hubs,
    /// Changes when the process begins or ends to serve something.
    pub(crate) served: watch::Sender<()>,
}

impl Default for Local {
    fn default() -> Self {
        Self {
            node: chance::draw(0..=u64::MAX),
            queues: Mutex::default(),
            names: Mutex::default(),
            waiters: Waiters::default(),
            running: Running::default(),
            alarms: Alarms::default(),
            hubs: Hubs::default(),
            served: watch::Sender::default(),
        }
    }
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

    /// What wakes one more scheduler of a queue, for as long as it is held.
    pub(crate) fn doorbell(&self, queue: &QueueName) -> Arc<Doorbell> {
        let doorbell = Arc::new(Doorbell::default());
        let mut queues = lock(&self.queues);
        let schedulers = queues.entry(queue.clone()).or_default();
        schedulers.retain(|scheduler| scheduler.strong_count() > 0);
        schedulers.push(Arc::downgrade(&doorbell));
        drop(queues);
        self.served.send_replace(());
        doorbell
    }

    /// What wakes one more expirer, for as long as it is held.
    pub(crate) fn alarm(&self) -> Arc<Alarm> {
        let alarm = self.alarms.add();
        self.served.send_replace(());
        alarm
    }

    /// What the engines of this process serve, of what is told to them.
    pub(crate) fn serves(&self) -> Serves {
        let queues = lock(&self.queues);
        let served = queues
            .iter()
            .filter(|(_, schedulers)| schedulers.iter().any(|scheduler| scheduler.strong_count() > 0));
        Serves {
            queues: served.map(|(queue, _)| queue.clone()).collect(),
            deadlines: self.alarms.any(),
        }
    }

    /// The schedulers of a queue in this process.
    fn schedulers(&self, queue: &QueueName) -> Vec<Arc<Doorbell>> {
        let queues = lock(&self.queues);
        queues
            .get(queue)
            .map(|schedulers| schedulers.iter().filter_map(Weak::upgrade).collect())
            .unwrap_or_default()
    }

    /// Tells every scheduler of a queue in this process that it has work: one of them may be full.
    pub(crate) fn ring(&self, queue: &QueueName) {
        self.schedulers(queue).iter().for_each(|doorbell| doorbell.ring());
    }

    /// Tells every scheduler of this process that there may be work, and every expirer that a deadline may be due.
    pub(crate) fn ring_all(&self) {
        let all: Vec<_> = lock(&self.queues)
            .values()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect();
        all.iter().for_each(|doorbell| doorbell.ring());
        self.alarms.set(Instant::now());
    }

    /// A queue has work: the schedulers of this process are told first, then those of others.
    pub(crate) fn poke(&self, queue: &QueueName) {
        self.ring(queue);
        let now = Instant::now();
        self.hubs.tell(|outbox| outbox.work(queue, now, now));
    }

    /// A queue has work, in so much time from now.
    pub(crate) fn poke_in(&self, queue: &QueueName, due: Duration) {
        if due.is_zero() {
            self.poke(queue);
            return;
        }
        let now = Instant::now();
        let at = now + due;
        self.schedulers(queue)
            .iter()
            .for_each(|doorbell| doorbell.due(at));
        self.hubs.tell(|outbox| outbox.work(queue, at, now));
    }

    /// Any queue may have work.
    pub(crate) fn poke_all(&self) {
        self.ring_all();
        self.hubs.tell(super::outbox::Outbox::anything);
    }

    /// A deadline was set that fires at this instant, about.
    pub(crate) fn deadline(&self, at: Instant) {
        self.alarms.set(at);
        let now = Instant::now();
        self.hubs.tell(|outbox| outbox.deadline(at, now));
    }

    /// The cancellation of an instance that executes was asked for, and stands in the store.
    pub(crate) fn cancel(&self, id: InstanceId) {
        self.running.cancel(id);
        self.hubs.tell(|outbox| outbox.cancelled(id));
    }

    /// Another process says so; it leads to a look at the store, and to nothing else.
    pub(crate) fn heard(&self, poke: Poke) {
        match poke {
            Poke::Work { queue, due } if due.is_zero() => self.ring(&queue),
            Poke::Work { queue, due } => {
                let at = Instant::now() + due;
                self.schedulers(&queue)
                    .iter()
                    .for_each(|doorbell| doorbell.due(at));
            }
            Poke::Anything => self.ring_all(),
            Poke::Deadline { due } => self.alarms.set(Instant::now() + due),
            Poke::Cancel { id } => self.running.ask_about(id),
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
