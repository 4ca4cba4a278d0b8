//! Limits in the runtime: what a step needs before it starts is asked for by the [`admitter`], what it held goes to
//! those who wait by the [`release`], and keys that nobody frees are looked at by the [`unblocker`] (rules LIM-1 to
//! LIM-8).

mod admitter;
mod backend;
mod permit;
mod policies;
mod release;
mod renewer;
mod unblocker;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::alarm::Alarm;
use super::finished::Finished;
use super::local::Local;
use crate::limiter::Limiter;
use crate::store::{BringBack, ClaimedInstance, RateDemand, Store};
use crate::types::ConcurrencyKey;

pub(crate) use admitter::Decision;
use admitter::{Admitter, Asked};
pub(crate) use backend::Backend;
pub(crate) use permit::Permit;
use permit::Permits;
pub(crate) use policies::{PolicyCache, RateRefused, check_rate};
use release::{KeyRelease, SlotRelease};
pub(crate) use renewer::Renewer;
pub(crate) use unblocker::Unblocker;

/// How often a shutdown looks whether everything is given back.
const LOOK: Duration = Duration::from_millis(5);

/// What the roles of limits share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) local: Arc<Local>,
    pub(crate) policies: PolicyCache,
    pub(crate) backend: Option<Arc<Backend>>,
    /// When the unblocker looks next.
    pub(crate) alarm: Alarm,
}

impl Shared {
    /// Brings instances back, and tells their queues; what still waits is looked at in time.
    async fn bring_back(&self, keys: Vec<BringBack>) -> Result<(), crate::error::StoreError> {
        for brought in self.store.bring_back(keys).await? {
            crate::observe::brought_back(brought.instances);
            brought.queues.iter().for_each(|queue| self.local.poke(queue));
            if let Some(look_in) = brought.look_in {
                self.alarm.set(Instant::now() + look_in);
            }
        }
        Ok(())
    }
}

/// The limits of one engine.
pub(crate) struct Limits {
    pub(crate) shared: Arc<Shared>,
    ask: mpsc::UnboundedSender<Asked>,
    keys: mpsc::UnboundedSender<ConcurrencyKey>,
    permits: Arc<Permits>,
}

impl Limits {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        local: Arc<Local>,
        limiter: Option<Arc<dyn Limiter>>,
        label: &str,
        lease: Duration,
    ) -> Arc<Self> {
        let shared = Arc::new(Shared {
            policies: PolicyCache::new(Arc::clone(&store)),
            store,
            local,
            backend: limiter.map(|limiter| Arc::new(Backend::new(limiter, label, lease))),
            alarm: Alarm::default(),
        });
        let (ask, asked) = mpsc::unbounded_channel();
        let (keys, freed_keys) = mpsc::unbounded_channel();
        let (permits, freed_slots) = Permits::new();
        tokio::spawn(Admitter::new(&shared, &permits).run(asked));
        tokio::spawn(KeyRelease::new(&shared, &permits).run(freed_keys));
        tokio::spawn(SlotRelease::new(&shared, &permits).run(freed_slots));
        Arc::new(Self {
            shared,
            ask,
            keys,
            permits,
        })
    }

    /// Asks for what an instance needs before its step starts, beside the permit that it has; `None` when that is
    /// nothing. The order of the calls is the order of the decisions.
    pub(crate) fn ask(
        &self,
        instance: &ClaimedInstance,
        version: i64,
        permit: Option<&Permit>,
    ) -> Option<tokio::sync::oneshot::Receiver<Decision>> {
        let needed = instance.limits.concurrency.as_ref().filter(|_| instance.gated);
        let gate = needed.filter(|key| permit.and_then(Permit::gate) != Some(*key));
        let rate: Option<&RateDemand> = instance.limits.rate.as_ref();
        if gate.is_none() && rate.is_none() {
            return None;
        }
        let (answer, decision) = tokio::sync::oneshot::channel();
        let asked = Asked {
            gate: gate.cloned(),
            rate: rate.cloned(),
            version,
            answer,
        };
        // The admitter lives as long as this sender.
        let _ = self.ask.send(asked);
        Some(decision)
    }

    /// Whether the next step may run ahead: a new key without a gate is taken by a claim only (rule RUN-3).
    pub(crate) fn may_run_ahead(&self, finished: &Finished) -> bool {
        let before = &finished.work.instance.limits;
        let after = finished.limits.as_ref().unwrap_or(before);
        match &after.concurrency {
            Some(key) if after.concurrency != before.concurrency => {
                self.shared.policies.current().gate(key.limit_name()).is_some()
            }
            _ => true,
        }
    }

    /// Why one of these demands can never be met, if so. When the store does not answer, they pass: a step that cannot
    /// start is reported then.
    pub(crate) async fn refuses(&self, demands: Vec<RateDemand>) -> Option<String> {
        for demand in demands {
            match check_rate(&self.shared.policies, &demand).await {
                Ok(()) => {}
                Err(RateRefused::Invalid(refused)) => return Some(refused.to_string()),
                Err(RateRefused::Store(error)) => crate::observe::store_error("limits", &error),
            }
        }
        None
    }

    /// An instance was set aside, or its key is due for another reason, at this instant.
    pub(crate) fn look_at(&self, instant: Instant) {
        self.shared.alarm.set(instant);
    }

    /// Concurrency keys without a gate are free, and others wait for them.
    pub(crate) fn freed(&self, keys: Vec<ConcurrencyKey>) {
        for key in keys {
            self.permits.releasing();
            // The task lives as long as this sender.
            let _ = self.keys.send(key);
        }
    }

    /// Slots whose lease has ended: others have been admitted in their place.
    pub(crate) fn lost(&self, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.permits.lost(number));
    }

    /// Waits until all that was freed has gone to those who wait, and leaves the backend.
    pub(crate) async fn leave(&self, until: Instant) {
        while self.permits.outstanding() > 0 && Instant::now() < until {
            sleep(LOOK).await;
        }
        if let Some(backend) = &self.shared.backend {
            // What it could not give back is had back when its lease ends.
            let _ = tokio::time::timeout_at(until, backend.leave()).await;
        }
    }
}
