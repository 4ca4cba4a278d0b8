//! One holder of slots.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use durable_core::limiter::{Admission, AdmitRequest, LimitKind, LimiterError, Renewed, Slot, SlotHolder};

use super::{CounterKey, Held, Shared, State, error, gate_key};

pub(super) struct MemoryHolder {
    pub(super) shared: Arc<Shared>,
    pub(super) label: String,
    pub(super) lease: Duration,
    pub(super) own: Mutex<Own>,
    pub(super) next_slot: AtomicU64,
}

/// What the holder itself remembers.
#[derive(Default)]
pub(super) struct Own {
    /// Under which number the limiter knows it; `None` once it has left.
    number: Option<u64>,
    /// The slots that it was given and has not given back.
    slots: BTreeMap<u64, Slot>,
    /// The numbers of those that it may have been given, in an answer that never came.
    doubtful: Vec<Range<u64>>,
}

/// Which keys have denied somebody in this call, and when there may be room.
type Denials = BTreeMap<CounterKey, Option<Duration>>;

impl MemoryHolder {
    pub(super) fn enter(&self, state: &mut State, now: Duration) -> u64 {
        state.last_holder += 1;
        let held = Held {
            label: self.label.clone(),
            ends: now + self.lease,
            slots: BTreeMap::new(),
        };
        state.holders.insert(state.last_holder, held);
        state.last_holder
    }

    pub(super) fn goes_on_as(&self, number: u64) {
        self.own().number = Some(number);
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> Result<u64, LimiterError> {
        self.own().number.ok_or_else(|| error("this holder has left"))
    }

    fn admit_one(
        state: &mut State,
        denials: &mut Denials,
        request: &AdmitRequest,
        slot: u64,
        now: Duration,
    ) -> Admission {
        let gate = request.gate.as_ref().map(|gate| (gate_key(&gate.key), gate));
        let rate = request.rate.as_ref();
        let rate = rate.map(|rate| ((LimitKind::Rate, rate.key.as_str().to_owned()), rate));
        if let Some((key, rate)) = &rate {
            let burst = state.counter(key.clone(), &rate.policy, now).capacity();
            if rate.weight > burst {
                return Admission::TooHeavy { burst };
            }
        }
        if let Some((key, gate)) = &gate
            && (state.counter(key.clone(), &gate.policy, now).room() == 0 || denials.contains_key(key))
        {
            denials.insert(key.clone(), None);
            return Admission::Denied {
                by: LimitKind::Gate,
                look_in: None,
            };
        }
        if let Some((key, rate)) = &rate {
            let counter = state.counter(key.clone(), &rate.policy, now);
            if counter.room() < rate.weight || denials.contains_key(key) {
                let look_in = counter.room_in(rate.weight);
                let look_in = *denials.entry(key.clone()).or_insert(look_in);
                let by = LimitKind::Rate;
                return Admission::Denied { by, look_in };
            }
            counter.take(rate.weight);
        }
        let slot = gate.map(|(key, gate)| {
            state.counter(key, &gate.policy, now).take(1);
            Slot {
                gate: gate.key.clone(),
                shard: 0,
                number: slot,
            }
        });
        Admission::Admitted(slot)
    }
}

/// The slots of a call whose answer has not arrived: when it never does, as the call failed or was dropped, the
/// next renewal gives back what it took.
struct Doubt<'holder> {
    holder: &'holder MemoryHolder,
    numbers: Range<u64>,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.holder.own().doubtful.push(self.numbers.clone());
    }
}

#[async_trait]
impl SlotHolder for MemoryHolder {
    async fn admit(&self, requests: Vec<AdmitRequest>) -> Result<Vec<Admission>, LimiterError> {
        let number = self.number()?;
        let count = requests.len() as u64;
        let first = self.next_slot.fetch_add(count, Ordering::Relaxed);
        let doubt = Doubt {
            holder: self,
            numbers: first..first + count,
        };
        let admitted = self
            .shared
            .call(|state, now| {
                if !state.holders.contains_key(&number) {
                    return Err(error(
                        "the lease of this holder had ended; it goes on with its next renewal",
                    ));
                }
                let mut denials = Denials::new();
                let numbered = (first..).zip(&requests);
                let answers: Vec<_> = numbered
                    .map(|(slot, request)| Self::admit_one(state, &mut denials, request, slot, now))
                    .collect();
                let mut own = self.own();
                for answer in &answers {
                    if let Admission::Admitted(Some(slot)) = answer {
                        own.slots.insert(slot.number, slot.clone());
                        if let Some(held) = state.holders.get_mut(&number) {
                            held.slots.insert(slot.number, slot.gate.clone());
                        }
                    }
                }
                if std::mem::take(&mut state.lose_next_admission) {
                    return Err(error("the answer was lost"));
                }
                Ok(answers)
            })
            .await?;
        std::mem::forget(doubt);
        Ok(admitted)
    }

    async fn credit(&self, slots: Vec<Slot>) -> Result<(), LimiterError> {
        self.shared
            .call(|state, _| {
                let mut own = self.own();
                for slot in &slots {
                    own.slots.remove(&slot.number);
                    let held = own.number.and_then(|number| state.holders.get_mut(&number));
                    if held.is_some_and(|held| held.slots.remove(&slot.number).is_some()) {
                        state.give_back(&slot.gate);
                    }
                }
                Ok(())
            })
            .await
    }

    async fn renew(&self) -> Result<Renewed, LimiterError> {
        let number = self.number()?;
        self.shared
            .call(|state, now| {
                let mut own = self.own();
                let doubtful = std::mem::take(&mut own.doubtful);
                for slot in doubtful.into_iter().flatten() {
                    own.slots.remove(&slot);
                    let held = state.holders.get_mut(&number);
                    if let Some(gate) = held.and_then(|held| held.slots.remove(&slot)) {
                        state.give_back(&gate);
                    }
                }
                if let Some(held) = state.holders.get_mut(&number) {
                    held.ends = now + self.lease;
                    return Ok(Renewed::default());
                }
                own.number = Some(self.enter(state, now));
                let lost = std::mem::take(&mut own.slots).into_values().collect();
                Ok(Renewed { lost })
            })
            .await
    }

    async fn leave(&self) -> Result<(), LimiterError> {
        self.shared
            .call(|state, _| {
                let own = std::mem::take(&mut *self.own());
                if let Some(number) = own.number {
                    state.end(number);
                }
                Ok(())
            })
            .await
    }
}
