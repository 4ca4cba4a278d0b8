//! One scheduler per queue: claims what there is room for, dispatches it, sleeps until something is due.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::doorbell::Doorbell;
use super::executor::Executor;
use super::feed::{Feed, Step};
use super::slots::Slots;
use super::worker::{CurrentWorker, Worker};
use crate::error::StoreError;
use crate::observe;
use crate::store::{ClaimRequest, Store};
use crate::types::{MachineKey, QueueName};

pub(crate) struct Scheduler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) worker: Arc<CurrentWorker>,
    pub(crate) machines: Arc<[MachineKey]>,
    pub(crate) queue: QueueName,
    pub(crate) concurrency: usize,
    pub(crate) poll: Duration,
    pub(crate) slots: Arc<Slots>,
    pub(crate) poke: Arc<Doorbell>,
    pub(crate) stop: CancellationToken,
}

/// What ends a wait.
enum Event {
    Stop,
    Poke,
    Due(Instant),
    Slot,
    Time,
}

impl Scheduler {
    /// Runs until the engine stops. No call to the store is ever dropped midway.
    pub(crate) async fn run(self) {
        let mut feed = Feed::new(self.concurrency, self.poll, Instant::now());
        loop {
            let (until, for_room) = match feed.step(self.slots.room(), Instant::now()) {
                Step::Claim(count) if !self.stop.is_cancelled() => {
                    self.claim(&mut feed, count).await;
                    continue;
                }
                Step::Claim(_) => return,
                Step::WaitUntil(instant) => (Some(instant), false),
                Step::WaitForRoom(until) => (until, true),
            };
            match self.wait(until, for_room).await {
                Event::Stop => return,
                Event::Poke => feed.poked(),
                Event::Due(at) => feed.due(at),
                Event::Slot | Event::Time => {}
            }
        }
    }

    async fn wait(&self, until: Option<Instant>, for_room: bool) -> Event {
        let timer = async {
            match until {
                Some(instant) => tokio::time::sleep_until(instant).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Event::Stop,
            () = self.poke.rings() => Event::Poke,
            at = self.poke.told() => Event::Due(at),
            () = self.slots.freed(), if for_room => Event::Slot,
            () = timer => Event::Time,
        }
    }

    async fn claim(&self, feed: &mut Feed, limit: usize) {
        let worker = self.worker.get();
        if worker.stopping.is_cancelled() {
            // The lease seems lost: what started now would be told to stop at once.
            self.wait_for_another(&worker).await;
            return;
        }
        let number = worker.claims.ask();
        let request = ClaimRequest {
            worker: worker.id,
            number,
            queue: self.queue.clone(),
            machines: Arc::clone(&self.machines),
            limit,
        };
        let started = Instant::now();
        match self.store.claim(request).await {
            Ok(claimed) => {
                let found = claimed.instances.len();
                worker.claims.answered(number, found);
                observe::claimed(&self.queue, found, started.elapsed());
                observe::set_aside(&self.queue, claimed.set_aside);
                let version = claimed.limits_version.unwrap_or(0);
                for instance in claimed.instances {
                    self.executor.start(&worker, instance, version, self.slots.take());
                }
                observe::in_flight(&self.queue, self.slots.held());
                feed.claimed(limit, found, claimed.next_due, Instant::now());
            }
            Err(error) => {
                worker.claims.unanswered(number);
                observe::claim_failed(&self.queue);
                feed.failed(Instant::now());
                if matches!(error, StoreError::WorkerDead) {
                    // The heartbeat finds out too, and registers anew.
                    self.wait_for_another(&worker).await;
                } else {
                    observe::store_error("claim", &error);
                }
            }
        }
    }

    async fn wait_for_another(&self, worker: &Arc<Worker>) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            _ = tokio::time::timeout(self.poll, self.worker.other_than(worker)) => {}
        }
    }
}
