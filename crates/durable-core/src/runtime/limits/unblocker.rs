//! Looks at keys that instances wait for, when there may be room: rate limits refill, policies change, and a process
//! may have died between freeing a slot and telling (rule LIM-7).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::policies::PolicySet;
use super::{Backend, Shared};
use crate::error::StoreError;
use crate::limiter::{GateUse, LimitUse, LimiterError, RateUse};
use crate::observe;
use crate::store::{BringBack, LimitKey};
use crate::types::ConcurrencyKey;

/// How many keys one look takes.
const BATCH: usize = 500;
/// How often it looks when nothing waits, as far as it knows.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// And when something does: another process may have changed a limit.
const WATCHFUL_SLEEP: Duration = Duration::from_secs(1);
/// How often the limiter is repaired, and how much at once.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
const REPAIR_BATCH: usize = 1000;

pub(crate) struct Unblocker {
    pub(crate) shared: Arc<Shared>,
    /// Whether it also repairs what dead processes have left in the limiter.
    pub(crate) repairs: bool,
    pub(crate) stop: CancellationToken,
}

impl Unblocker {
    pub(crate) async fn run(self) {
        let mut repair_at = Instant::now() + REPAIR_INTERVAL;
        while !self.stop.is_cancelled() {
            // Before the store is asked: what is set from here on may not be in the answer.
            self.shared.alarm.clear();
            let now = Instant::now();
            if self.repairs && now >= repair_at {
                self.repair().await;
                repair_at = now + REPAIR_INTERVAL;
            }
            let sleep = match self.look().await {
                Ok(Some(next)) => next.min(WATCHFUL_SLEEP),
                Ok(None) => LONGEST_SLEEP,
                Err(error) => {
                    observe::store_error("due_keys", &error);
                    WATCHFUL_SLEEP
                }
            };
            let until = Instant::now() + sleep;
            let until = if self.repairs && self.shared.backend.is_some() {
                until.min(repair_at)
            } else {
                until
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = self.shared.alarm.rings() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Looks at the keys that are due; how long until the next one.
    async fn look(&self) -> Result<Option<Duration>, StoreError> {
        loop {
            let due = self.shared.store.due_keys(BATCH).await?;
            let more = due.keys.len() >= BATCH;
            if !due.keys.is_empty() {
                let policies = self.shared.policies.at_least(due.limits_version).await?;
                self.bring_back(due.keys, &policies).await?;
            }
            if !more {
                return Ok(due.next);
            }
        }
    }

    async fn bring_back(&self, keys: Vec<LimitKey>, policies: &PolicySet) -> Result<(), StoreError> {
        let mut ready = Vec::new();
        let mut asked = Vec::new();
        for key in keys {
            match counted(&key, policies) {
                Some(counted) => asked.push(counted),
                // The store knows whether somebody holds it.
                None if matches!(key, LimitKey::Concurrency(_)) => ready.push(BringBack {
                    key,
                    room: 1,
                    unit: None,
                }),
                // Of a rate limit that is gone nothing starts.
                None => {}
            }
        }
        if let Some(backend) = self.shared.backend.as_deref().filter(|_| !asked.is_empty()) {
            match room(backend, asked).await {
                Ok(keys) => ready.extend(keys),
                // They are due again a second later.
                Err(error) => observe::limiter_error("room", &error),
            }
        }
        if ready.is_empty() {
            return Ok(());
        }
        self.shared.bring_back(ready).await
    }

    async fn repair(&self) {
        let Some(backend) = self.shared.backend.as_deref() else {
            return;
        };
        match backend.limiter.maintain(REPAIR_BATCH).await {
            Ok(maintained) => {
                observe::slots_reconciled(maintained.reconciled);
                let freed = maintained
                    .freed
                    .into_iter()
                    .map(LimitKey::Concurrency)
                    .collect::<Vec<_>>();
                if freed.is_empty() {
                    return;
                }
                let policies = self.shared.policies.current();
                if let Err(error) = self.bring_back(freed, &policies).await {
                    observe::store_error("bring_back", &error);
                }
            }
            Err(error) => observe::limiter_error("maintain", &error),
        }
    }
}

/// A key that the limiter counts; `None` for one that has no policy.
fn counted(key: &LimitKey, policies: &PolicySet) -> Option<LimitUse> {
    match key {
        LimitKey::Concurrency(key) => policies.gate(key.limit_name()).map(|policy| {
            LimitUse::Gate(GateUse {
                key: ConcurrencyKey::clone(key),
                policy: Arc::clone(policy),
            })
        }),
        LimitKey::Rate(key) => policies.rate(key.limit_name()).map(|policy| {
            LimitUse::Rate(RateUse {
                key: key.clone(),
                policy: Arc::clone(policy),
                weight: 1,
            })
        }),
    }
}

/// What there is room for. Keys without room are named too: the store says when to look again.
async fn room(backend: &Backend, keys: Vec<LimitUse>) -> Result<Vec<BringBack>, LimiterError> {
    let rooms = backend.limiter.room(keys.clone()).await?;
    let brought = keys.into_iter().zip(rooms).map(|(key, room)| match key {
        LimitUse::Gate(gate) => BringBack {
            key: LimitKey::Concurrency(gate.key),
            room,
            unit: None,
        },
        LimitUse::Rate(rate) => BringBack {
            key: LimitKey::Rate(rate.key),
            room,
            unit: rate.policy.limit.refill_time(1),
        },
    });
    Ok(brought.collect())
}
