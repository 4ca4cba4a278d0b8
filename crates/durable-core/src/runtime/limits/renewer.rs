//! Keeps the lease of the engine's slots alive, beside the heartbeat.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Limits;
use crate::observe;

/// How many renewals fit into one lease.
const RENEWALS_PER_LEASE: u32 = 4;

pub(crate) struct Renewer {
    pub(crate) limits: Arc<Limits>,
    pub(crate) stop: CancellationToken,
}

impl Renewer {
    pub(crate) async fn run(self) {
        let Some(backend) = self.limits.shared.backend.clone() else {
            return;
        };
        let gap: Duration = backend.lease / RENEWALS_PER_LEASE;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = sleep(gap) => {}
            }
            let Some(holder) = backend.joined() else { continue };
            match timeout(backend.lease / 2, holder.renew()).await {
                Ok(Ok(renewed)) => {
                    if !renewed.lost.is_empty() {
                        observe::slots_lost(renewed.lost.len());
                        tracing::warn!(
                            slots = renewed.lost.len(),
                            "slots were lost, as they were not renewed in time; their steps are stopped"
                        );
                        self.limits.lost(renewed.lost.into_iter().map(|slot| slot.number));
                    }
                }
                Ok(Err(error)) => observe::limiter_error("renew", &error),
                Err(_elapsed) => tracing::warn!("a renewal of slots got no answer"),
            }
        }
    }
}
