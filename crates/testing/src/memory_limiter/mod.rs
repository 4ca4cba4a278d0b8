//! The limiter in memory: the reference model of [`Limiter`].
//!
//! One lock, and one number per key: how much of its budget is spent. Time is tokio's, so that a test under paused
//! time moves it. It has no shards, as its decisions are one at a time.

mod counter;
mod holder;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use durable_core::ConcurrencyKey;
use durable_core::limiter::{
    LimitKind, LimitPolicy, LimitUsage, LimitUse, Limiter, LimiterError, Maintained, SlotHolder,
};
use tokio::task::yield_now;
use tokio::time::Instant;

use counter::Counter;
use holder::MemoryHolder;

/// A [`Limiter`] in memory. A clone is another handle of the same counters.
#[derive(Clone)]
pub struct MemoryLimiter {
    shared: Arc<Shared>,
}

struct Shared {
    /// The limiter's clock counts from here.
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counters: BTreeMap<CounterKey, Counter>,
    holders: BTreeMap<u64, Held>,
    last_holder: u64,
    calls: u64,
    out_of_order: bool,
    lose_next_admission: bool,
}

type CounterKey = (LimitKind, String);

/// One holder, as the limiter knows it.
struct Held {
    label: String,
    ends: Duration,
    slots: BTreeMap<u64, ConcurrencyKey>,
}

impl Shared {
    /// One call: a moment before and after, as a server would take, and its effect at once in between.
    async fn call<T: Send>(
        &self,
        work: impl FnOnce(&mut State, Duration) -> Result<T, LimiterError> + Send,
    ) -> Result<T, LimiterError> {
        yield_now().await;
        let answer = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.calls += 1;
            if state.out_of_order {
                Err(error("it is out of order"))
            } else {
                work(&mut state, self.origin.elapsed())
            }
        };
        yield_now().await;
        answer
    }
}

fn error(message: &str) -> LimiterError {
    LimiterError {
        limiter: "memory",
        message: message.to_owned(),
    }
}

impl State {
    /// The counter of a key, up to date, and with the newest policy that was ever given for it.
    fn counter(&mut self, key: CounterKey, policy: &LimitPolicy, now: Duration) -> &mut Counter {
        let counter = self
            .counters
            .entry(key)
            .or_insert_with(|| Counter::full(policy, now));
        counter.settle(policy, now);
        counter
    }

    fn give_back(&mut self, gate: &ConcurrencyKey) {
        if let Some(counter) = self.counters.get_mut(&gate_key(gate)) {
            counter.give_back(1);
        }
    }

    /// Takes all slots of a holder back, and forgets it.
    fn end(&mut self, holder: u64) -> Vec<ConcurrencyKey> {
        let held = self.holders.remove(&holder);
        let gates: Vec<_> = held
            .into_iter()
            .flat_map(|held| held.slots.into_values())
            .collect();
        for gate in &gates {
            self.give_back(gate);
        }
        gates
    }

    fn usage(&mut self, of: &LimitUse, now: Duration) -> LimitUsage {
        let (key, policy) = match of {
            LimitUse::Gate(gate) => (gate_key(&gate.key), &gate.policy),
            LimitUse::Rate(rate) => ((LimitKind::Rate, rate.key.as_str().to_owned()), &rate.policy),
        };
        let of_key = |held: &Held| {
            let slots = held.slots.values();
            let count = slots.filter(|gate| gate_key(gate) == key).count();
            (held.label.clone(), u32::try_from(count).unwrap_or(u32::MAX))
        };
        let holders = self.holders.values().map(of_key).filter(|(_, count)| *count > 0);
        let holders = holders.collect();
        let counter = self.counter(key, policy, now);
        LimitUsage::new(counter.capacity(), counter.room(), holders)
    }
}

fn gate_key(gate: &ConcurrencyKey) -> CounterKey {
    (LimitKind::Gate, gate.as_str().to_owned())
}

impl Default for MemoryLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl From<MemoryLimiter> for Arc<dyn Limiter> {
    fn from(limiter: MemoryLimiter) -> Self {
        Arc::<MemoryLimiter>::new(limiter)
    }
}

impl MemoryLimiter {
    /// A limiter in which nothing is spent.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                state: Mutex::default(),
            }),
        }
    }

    /// From now on every call fails and does nothing (`true`), or none does (`false`).
    pub fn out_of_order(&self, on: bool) {
        self.state(|state| state.out_of_order = on);
    }

    /// The next admission takes effect, and its answer is lost.
    pub fn lose_next_admission(&self) {
        self.state(|state| state.lose_next_admission = true);
    }

    /// How many calls have arrived, those of holders and those that failed included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state(|state| state.calls)
    }

    fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Limiter for MemoryLimiter {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn join(&self, label: &str, lease: Duration) -> Result<Arc<dyn SlotHolder>, LimiterError> {
        let holder = MemoryHolder {
            shared: Arc::clone(&self.shared),
            label: label.to_owned(),
            lease,
            own: Mutex::default(),
            next_slot: AtomicU64::new(0),
        };
        let joined = Arc::new(holder);
        let own = self
            .shared
            .call(|state, now| Ok(joined.enter(state, now)))
            .await?;
        joined.goes_on_as(own);
        Ok(joined)
    }

    async fn room(&self, keys: Vec<LimitUse>) -> Result<Vec<u32>, LimiterError> {
        let usage = self.usage(keys).await?;
        Ok(usage.into_iter().map(|usage| usage.available).collect())
    }

    async fn usage(&self, keys: Vec<LimitUse>) -> Result<Vec<LimitUsage>, LimiterError> {
        self.shared
            .call(|state, now| Ok(keys.iter().map(|of| state.usage(of, now)).collect()))
            .await
    }

    async fn maintain(&self, limit: usize) -> Result<Maintained, LimiterError> {
        self.shared
            .call(|state, now| {
                let ended = state.holders.iter().filter(|(_, held)| held.ends <= now);
                let ended: Vec<u64> = ended.map(|(holder, _)| *holder).collect();
                let gates: Vec<_> = ended.into_iter().flat_map(|holder| state.end(holder)).collect();
                for counter in state.counters.values_mut() {
                    let policy = counter.policy.clone();
                    counter.settle(&policy, now);
                }
                let full = state.counters.iter().filter(|(_, counter)| counter.is_full());
                let full: Vec<_> = full.map(|(key, _)| key.clone()).take(limit).collect();
                for key in &full {
                    state.counters.remove(key);
                }
                let reconciled = gates.len() as u64;
                Ok(Maintained {
                    freed: gates.into_iter().collect::<BTreeSet<_>>().into_iter().collect(),
                    reconciled,
                    swept: full.len() as u64,
                })
            })
            .await
    }
}
