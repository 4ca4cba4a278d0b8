//! When to look at the store next, as far as this process knows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The alarms of the engines of one store in this process.
#[derive(Default)]
pub(crate) struct Alarms(Mutex<Vec<Weak<Alarm>>>);

impl Alarms {
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

    /// There is something to do at this instant, about.
    pub(crate) fn set(&self, instant: Instant) {
        let alarms: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        alarms.iter().for_each(|alarm| alarm.set(instant));
    }
}

/// The earliest instant that was told. The store knows all of them, so one is enough.
#[derive(Default)]
pub(crate) struct Alarm {
    at: Mutex<Option<Instant>>,
    moved: Notify,
}

impl Alarm {
    pub(crate) fn set(&self, instant: Instant) {
        let mut at = lock(&self.at);
        if at.is_none_or(|at| instant < at) {
            *at = Some(instant);
            self.moved.notify_one();
        }
    }

    pub(crate) fn clear(&self) {
        *lock(&self.at) = None;
    }

    /// Resolves at the instant that is set, also when it is set or moved meanwhile.
    pub(crate) async fn rings(&self) {
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
