//! Fires the deadlines of waits on time (rule SIG-4): sleeps until the next one that it knows of.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::alarm::Alarm;
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
