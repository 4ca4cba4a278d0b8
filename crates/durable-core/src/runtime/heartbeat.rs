//! Keeps the worker's lease alive, on a thread, runtime and connection of its own, so that a blocking step or
//! a busy pool costs no lease; finds out when the lease is lost (rules LEASE-1, LEASE-4, CLAIM-6).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::limits::Limits;
use super::local::Local;
use super::worker::{CurrentWorker, Worker};
use crate::observe;
use crate::store::{Beat, Heart, NewWorker, Store};

/// Beats per lease: two may be lost and the third still comes in time.
const BEATS_PER_LEASE: u32 = 4;
/// The shortest time between two beats, however many cancellations are told of.
const SHORTEST_GAP: Duration = Duration::from_millis(20);
/// The pause between tries to register anew.
const REGISTER_PAUSE: Duration = Duration::from_millis(500);

/// Beats until `stop`, and reports each answer. Run on a runtime of its own.
pub(crate) struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) worker: Arc<CurrentWorker>,
    pub(crate) lease: Duration,
    pub(crate) answers: mpsc::UnboundedSender<(Arc<Worker>, Beat)>,
    /// Changes when a beat should come at once, for what it tells of cancellations.
    pub(crate) asked: watch::Receiver<()>,
    pub(crate) stop: CancellationToken,
}

impl Heartbeat {
    pub(crate) async fn run(mut self) {
        let mut heart = self.store.heart();
        let mut trusted_until = Instant::now() + self.lease;
        while !self.stop.is_cancelled() {
            let worker = self.worker.get();
            let sent = Instant::now();
            self.asked.mark_unchanged();
            if let Some(beat) = self.beat(&mut heart, &worker).await {
                trusted_until = sent + self.lease;
                let _ = self.answers.send((worker, beat));
            } else if Instant::now() >= trusted_until {
                // Nobody may have taken the work back yet, so outcomes are still offered; steps are told.
                worker.stopping.cancel();
            }
            let gap = SHORTEST_GAP.min(self.lease / BEATS_PER_LEASE);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(self.lease / BEATS_PER_LEASE) => {}
                () = async {
                    tokio::time::sleep(gap).await;
                    if self.asked.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                } => {}
            }
        }
    }

    /// One beat. After a failure the heart, and with it its connection, is a new one.
    async fn beat(&self, heart: &mut Box<dyn Heart>, worker: &Worker) -> Option<Beat> {
        match timeout(self.lease / 2, heart.beat(worker.id, self.lease)).await {
            Ok(Ok(beat)) => return Some(beat),
            Ok(Err(error)) => observe::store_error("beat", &error),
            Err(_elapsed) => tracing::warn!(worker = %worker.id, "a heartbeat got no answer"),
        }
        *heart = self.store.heart();
        None
    }
}

/// Acts on the answers to heartbeats.
pub(crate) struct Keeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) local: Arc<Local>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) new_worker: NewWorker,
    pub(crate) worker: Arc<CurrentWorker>,
    pub(crate) stopping: CancellationToken,
}

impl Keeper {
    pub(crate) async fn run(self, mut answers: mpsc::UnboundedReceiver<(Arc<Worker>, Beat)>) {
        while let Some((worker, beat)) = answers.recv().await {
            let current = self.worker.get();
            if worker.id != current.id {
                continue;
            }
            match beat {
                Beat::Alive { claims, cancelled } => {
                    cancelled.into_iter().for_each(|id| self.local.running.cancel(id));
                    self.give_back_unknown(&current, claims).await;
                    if current.stopping.is_cancelled() && !self.stopping.is_cancelled() {
                        self.worker.replace(current.resumed(self.stopping.child_token()));
                    }
                }
                Beat::Dead => self.start_anew(&current).await,
            }
        }
    }

    async fn give_back_unknown(&self, worker: &Worker, listed: Vec<crate::types::ClaimNumber>) {
        let unknown = worker.claims.unknown(listed);
        if unknown.is_empty() {
            return;
        }
        let count = unknown.len();
        match self.store.release(worker.id, unknown).await {
            Ok(freed) => {
                observe::claims_recovered(count);
                self.limits.freed(freed);
            }
            Err(error) => observe::store_error("release", &error),
        }
    }

    /// The store took the work back: the steps are told, and the process goes on as a new worker.
    async fn start_anew(&self, lost: &Worker) {
        lost.stopping.cancel();
        observe::lease_lost();
        tracing::warn!(worker = %lost.id, "the lease was lost; going on as a new worker");
        while !self.stopping.is_cancelled() {
            match self.store.register(self.new_worker.clone()).await {
                Ok(id) => {
                    self.worker.replace(Worker::new(id, self.stopping.child_token()));
                    return;
                }
                Err(error) => observe::store_error("register", &error),
            }
            tokio::time::sleep(REGISTER_PAUSE).await;
        }
    }
}
