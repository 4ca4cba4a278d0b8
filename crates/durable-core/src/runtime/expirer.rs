//! Fires the deadlines of waits on time (rule SIG-4): sleeps until the next one that it knows of.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::local::Local;
use crate::error::StoreError;
use crate::observe;
use crate::store::Store;

/// How often it looks at least: a deadline that another process set, and did not live to fire, is this late at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The pause after a failed call.
const PAUSE: Duration = Duration::from_secs(1);
/// How many deadlines one round fires at most, about.
const BATCH: usize = 1000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The alarms of the expirers of this process.
#[derive(Default)]
pub(crate) struct Alarms(Mutex<Vec<Weak<Alarm>>>);

impl Alarms {
    /// One more alarm, for as long as it is held.
    pub(crate) fn add(&self) -> Arc<Alarm> {
        let alarm = Arc::new(Alarm::default());
        let mut alarms = lock(&self.0);
        alarms.retain(|alarm| alarm.strong_count() > 0);
        alarms.push(Arc::downgrade(&alarm));
        alarm
    }

    /// Whether anybody would hear one.
    pub(crate) fn any(&self) -> bool {
        lock(&self.0).iter().any(|alarm| alarm.strong_count() > 0)
    }

    /// A deadline was set that fires at this instant, about.
    pub(crate) fn set(&self, instant: Instant) {
        let alarms: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        alarms.iter().for_each(|alarm| alarm.set(instant));
    }
}

/// When the next deadline fires, as far as this process knows. The store knows all of them, so one is enough.
#[derive(Default)]
pub(crate) struct Alarm {
    at: Mutex<Option<Instant>>,
    moved: Notify,
}

impl Alarm {
    fn set(&self, instant: Instant) {
        let mut at = lock(&self.at);
        if at.is_none_or(|at| instant < at) {
            *at = Some(instant);
            self.moved.notify_one();
        }
    }

    fn clear(&self) {
        *lock(&self.at) = None;
    }

    /// Resolves at the instant that is set, also when it is set or moved meanwhile.
    async fn rings(&self) {
        loop {
            let at = *lock(&self.at);
            match at {
                None => self.moved.notified().await,
                Some(at) => tokio::select! {
                    biased;
                    () = self.moved.notified() => {}
                    () = tokio::time::sleep_until(at) => return,
                },
            }
        }
    }
}

pub(crate) struct Expirer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) local: Arc<Local>,
    pub(crate) stop: CancellationToken,
}

impl Expirer {
    pub(crate) async fn run(self) {
        let alarm = &self.alarm;
        while !self.stop.is_cancelled() {
            // Before the store is asked: what is set from here on may not be in the answer.
            alarm.clear();
            let sleep = match self.expire().await {
                Ok(next) => next.map_or(LONGEST_SLEEP, |next| next.min(LONGEST_SLEEP)),
                Err(error) => {
                    observe::store_error("expire", &error);
                    PAUSE
                }
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = alarm.rings() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Fires what is due; how long until the next one.
    async fn expire(&self) -> Result<Option<Duration>, StoreError> {
        loop {
            let expired = self.store.expire(BATCH).await?;
            observe::deadlines_fired(expired.instances);
            expired.woken.iter().for_each(|queue| self.local.poke(queue));
            if !expired.more {
                return Ok(expired.next);
            }
        }
    }
}
