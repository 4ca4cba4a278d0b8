//! Removes terminal instances after their retention (rule OPS-3).

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::observe;
use crate::store::{Retention, Store};

/// How often the collector looks.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many instances one round removes at most, about.
const BATCH: usize = 1000;

pub(crate) struct Collector {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) retention: Retention,
    pub(crate) stop: CancellationToken,
}

impl Collector {
    pub(crate) async fn run(self) {
        while !self.stop.is_cancelled() {
            match self.store.forget_keys(BATCH).await {
                Ok(count) => observe::keys_forgotten(count),
                Err(error) => observe::store_error("forget_keys", &error),
            }
            match self.store.collect(self.retention, BATCH).await {
                Ok(collected) => {
                    observe::collected(collected.instances);
                    if collected.more {
                        continue;
                    }
                }
                Err(error) => observe::store_error("collect", &error),
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }
}
