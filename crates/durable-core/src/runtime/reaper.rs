//! Returns the work of dead workers to runnable (rules LEASE-2, LEASE-5).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::Limits;
use super::local::Local;
use crate::error::StoreError;
use crate::observe;
use crate::store::Store;

/// How often the reaper looks at most; a quarter of a lease that is shorter than four times this.
const INTERVAL: Duration = Duration::from_secs(2);
/// How many instances one round returns at most, about.
const BATCH: usize = 1000;

pub(crate) struct Reaper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) local: Arc<Local>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) lease: Duration,
    pub(crate) stop: CancellationToken,
}

impl Reaper {
    pub(crate) async fn run(self) {
        // While the store was away nobody could beat: after that, workers get one lease to come back.
        let mut not_before = Instant::now();
        while !self.stop.is_cancelled() {
            if Instant::now() >= not_before {
                match reap_all(self.store.as_ref(), &self.limits).await {
                    Ok(0) => {}
                    Ok(_) => self.local.poke_all(),
                    Err(error) => {
                        observe::store_error("reap", &error);
                        not_before = Instant::now() + self.lease;
                    }
                }
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(INTERVAL.min(self.lease / 4)) => {}
            }
        }
    }
}

/// Reaps until nothing is left; how many instances were returned to runnable.
pub(crate) async fn reap_all(store: &dyn Store, limits: &Limits) -> Result<u64, StoreError> {
    let mut instances = 0;
    loop {
        let reaped = store.reap(BATCH).await?;
        observe::reaped(reaped.workers, reaped.instances);
        instances += reaped.instances;
        limits.freed(reaped.freed);
        if !reaped.more {
            return Ok(instances);
        }
    }
}
