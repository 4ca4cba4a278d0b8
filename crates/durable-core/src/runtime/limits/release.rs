//! What was freed goes to those who wait (rule LIM-7). What cannot be done here is found by the unblocker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Shared;
use super::permit::Permits;
use crate::limiter::Slot;
use crate::observe;
use crate::store::{BringBack, LimitKey};
use crate::types::ConcurrencyKey;

/// How many one call frees at most.
const LARGEST_CALL: usize = 1000;
/// The pauses between tries while the limiter fails.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Of keys without a gate: they are free already, as the outcome was committed.
pub(super) struct KeyRelease {
    shared: Arc<Shared>,
    permits: Arc<Permits>,
}

impl KeyRelease {
    pub(super) fn new(shared: &Arc<Shared>, permits: &Arc<Permits>) -> Self {
        Self {
            shared: Arc::clone(shared),
            permits: Arc::clone(permits),
        }
    }

    pub(super) async fn run(self, mut receiver: mpsc::UnboundedReceiver<ConcurrencyKey>) {
        let mut batch = Vec::new();
        while receiver.recv_many(&mut batch, LARGEST_CALL).await > 0 {
            let count = batch.len();
            let keys = batch.drain(..).map(|key| (key, 1)).collect();
            bring_back(&self.shared, keys).await;
            self.permits.released(count);
        }
    }
}

/// Of gates: each slot is given back to the limiter first.
pub(super) struct SlotRelease {
    shared: Arc<Shared>,
    permits: Arc<Permits>,
}

impl SlotRelease {
    pub(super) fn new(shared: &Arc<Shared>, permits: &Arc<Permits>) -> Self {
        Self {
            shared: Arc::clone(shared),
            permits: Arc::clone(permits),
        }
    }

    pub(super) async fn run(self, mut receiver: mpsc::UnboundedReceiver<Slot>) {
        let mut batch = Vec::new();
        while receiver.recv_many(&mut batch, LARGEST_CALL).await > 0 {
            let slots = std::mem::take(&mut batch);
            let count = slots.len();
            let mut gates: BTreeMap<ConcurrencyKey, u32> = BTreeMap::new();
            for slot in &slots {
                *gates.entry(slot.gate.clone()).or_default() += 1;
            }
            self.credit(slots).await;
            bring_back(&self.shared, gates).await;
            self.permits.released(count);
        }
    }

    /// Until it is done: a slot that is not given back counts as held for as long as this process lives.
    async fn credit(&self, slots: Vec<Slot>) {
        let Some(backend) = &self.shared.backend else {
            return;
        };
        let mut pause = FIRST_PAUSE;
        loop {
            let credited = async { backend.holder().await?.credit(slots.clone()).await };
            match credited.await {
                Ok(()) => return,
                Err(error) => observe::limiter_error("credit", &error),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

async fn bring_back(shared: &Shared, keys: BTreeMap<ConcurrencyKey, u32>) {
    let keys = keys.into_iter().map(|(key, room)| BringBack {
        key: LimitKey::Concurrency(key),
        room,
        unit: None,
    });
    if let Err(error) = shared.bring_back(keys.collect()).await {
        // The keys are looked at again a few seconds later.
        observe::store_error("bring_back", &error);
    }
}
