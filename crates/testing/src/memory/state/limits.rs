//! Limits: who holds keys, who waits for them, and what is configured (rules LIM-1, LIM-7, LIM-8).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{BringBack, BroughtBack, DueKeys, KeyStanding, LimitKey, Policies};
use durable_core::{ConcurrencyKey, InstanceId, Limit, LimitKind, LimitName, LimitPolicy, Status};

use super::{Row, State, Woken};

/// When a key that nobody frees is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The shortest time between two looks at one key.
const SHORTEST_LOOK: Duration = Duration::from_millis(5);
/// For how long nobody else looks at a key that is being looked at.
const BEING_LOOKED_AT: Duration = Duration::from_secs(1);
/// How many instances come back at once at most.
const LARGEST: u32 = 1000;

/// A key that is held, waited for, or paused.
#[derive(Default)]
pub(super) struct KeyRow {
    /// Who executes with a concurrency key without a gate.
    holder: Option<InstanceId>,
    look_at: Option<Duration>,
    paused_until: Option<Duration>,
}

impl KeyRow {
    fn paused(&self, now: Duration) -> bool {
        self.paused_until.is_some_and(|until| until > now)
    }
}

/// What is configured. A removed limit leaves its version behind.
#[derive(Default)]
pub(super) struct Configured {
    version: i64,
    limits: BTreeMap<(LimitKind, LimitName), Arc<LimitPolicy>>,
}

impl Row {
    /// Its key of a kind.
    fn key(&self, kind: LimitKind) -> Option<LimitKey> {
        match kind {
            LimitKind::Gate => self.limits.concurrency.clone().map(LimitKey::Concurrency),
            LimitKind::Rate => self
                .limits
                .rate
                .as_ref()
                .map(|rate| LimitKey::Rate(rate.key.clone())),
        }
    }

    /// The key that it waits for.
    fn waits_for(&self) -> Option<LimitKey> {
        let runnable = self.status == Status::Runnable;
        self.waits_for
            .filter(|_| runnable)
            .and_then(|kind| self.key(kind))
    }
}

impl State {
    pub(super) fn gated(&self, key: &ConcurrencyKey) -> bool {
        self.policy(&LimitKey::Concurrency(key.clone())).is_some()
    }

    fn policy(&self, key: &LimitKey) -> Option<&Arc<LimitPolicy>> {
        let of_key =
            |(kind, name): &(LimitKind, LimitName)| *kind == key.kind() && name.as_str() == key.limit_name();
        self.configured
            .limits
            .iter()
            .find(|(id, _)| of_key(id))
            .map(|(_, policy)| policy)
    }

    /// A key is held by an instance that executes with it.
    pub(super) fn limit_fault(&self) -> Option<String> {
        self.limit_keys.iter().find_map(|(key, standing)| {
            let holder = standing.holder?;
            let row = self.instances.get(&holder);
            let executes = row.is_some_and(|row| {
                row.status == Status::Executing && row.key(LimitKind::Gate).as_ref() == Some(key)
            });
            (!executes).then(|| {
                format!(
                    "key {} is held by {holder}, which does not execute with it",
                    key.as_str()
                )
            })
        })
    }

    pub(super) const fn limits_version(&self) -> i64 {
        self.configured.version
    }

    /// Who waits for a key, in the order in which they come back.
    fn waiting(&self, key: &LimitKey) -> Vec<InstanceId> {
        let mut waiting: Vec<_> = self
            .instances
            .iter()
            .filter(|(_, row)| row.waits_for().as_ref() == Some(key))
            .map(|(id, row)| (row.priority, row.eligible, *id))
            .collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Which limit a ready instance has to wait for, as far as the store knows.
    pub(super) fn blocked_by(&self, now: Duration, row: &Row) -> Option<LimitKind> {
        if row.cancellation.is_some() {
            // It only ends.
            return None;
        }
        let blocks = |kind: LimitKind| {
            let key = row.key(kind)?;
            let standing = self.limit_keys.get(&key)?;
            let behind = !row.recalled && !self.waiting(&key).is_empty();
            (standing.paused(now) || behind || standing.holder.is_some()).then_some(kind)
        };
        blocks(LimitKind::Rate).or_else(|| blocks(LimitKind::Gate))
    }

    /// Takes the key of an instance that is claimed, if it has one without a gate.
    pub(super) fn take_key(&mut self, id: InstanceId) {
        let Some(row) = self.instances.get(&id).filter(|row| row.cancellation.is_none()) else {
            return;
        };
        if let Some(key) = row.limits.concurrency.clone().filter(|key| !self.gated(key)) {
            self.limit_keys
                .entry(LimitKey::Concurrency(key))
                .or_default()
                .holder = Some(id);
        }
    }

    /// Frees a key that an instance holds; the answer is the key, if others wait for it.
    pub(super) fn free_key(&mut self, id: InstanceId, key: Option<ConcurrencyKey>) -> Option<ConcurrencyKey> {
        let key = key?;
        let limit_key = LimitKey::Concurrency(key.clone());
        let standing = self.limit_keys.get_mut(&limit_key)?;
        if standing.holder != Some(id) {
            return None;
        }
        standing.holder = None;
        (!self.waiting(&limit_key).is_empty()).then_some(key)
    }

    /// Puts a runnable instance behind a key. A time that was told already is kept, unless this one is sure to be asked
    /// for: then the earlier one counts.
    pub(super) fn set_aside(
        &mut self,
        now: Duration,
        id: InstanceId,
        kind: LimitKind,
        look_in: Option<Duration>,
    ) {
        let Some(row) = self.instances.get_mut(&id) else {
            return;
        };
        (row.waits_for, row.recalled) = (Some(kind), false);
        let Some(key) = row.key(kind) else { return };
        let standing = self.limit_keys.entry(key).or_default();
        standing.look_at = match (standing.look_at, look_in) {
            (Some(known), Some(look_in)) => Some(known.min(now + look_in)),
            (Some(known), None) => Some(known),
            (None, look_in) => Some(now + look_in.unwrap_or(LOOK_AGAIN)),
        };
    }

    pub(in crate::memory) fn bring_back(&mut self, now: Duration, keys: &[BringBack]) -> Vec<BroughtBack> {
        let mut seen: Vec<&LimitKey> = Vec::new();
        let mut brought = Vec::new();
        for one in keys {
            // Of two entries for one key the first counts.
            brought.push(if seen.contains(&&one.key) {
                BroughtBack::default()
            } else {
                self.bring_one_back(now, one)
            });
            seen.push(&one.key);
        }
        brought
    }

    fn bring_one_back(&mut self, now: Duration, one: &BringBack) -> BroughtBack {
        let waiting = self.waiting(&one.key);
        let capacity = self.policy(&one.key).map(|policy| capacity(&policy.limit));
        let Some(standing) = self.limit_keys.get(&one.key).filter(|_| !waiting.is_empty()) else {
            return BroughtBack::default();
        };
        let units = match &one.key {
            _ if standing.paused(now) => 0,
            LimitKey::Rate(_) => one.room,
            LimitKey::Concurrency(_) if standing.holder.is_some() => 0,
            LimitKey::Concurrency(_) if capacity.is_none() => 1,
            LimitKey::Concurrency(_) => one.room,
        };
        let units = u64::from(units.min(LARGEST));
        let (mut brought, mut woken, mut total, mut lacks) = (BroughtBack::default(), Woken::new(), 0_u64, 0);
        for id in waiting {
            let Some(row) = self.instances.get_mut(&id) else {
                continue;
            };
            let weight = match (&one.key, &row.limits.rate) {
                (LimitKey::Rate(_), Some(rate)) => rate.weight,
                _ => 1,
            };
            // One that the limit can never pay for must not hold up the others; its step will not start.
            total += u64::from(if capacity.is_some_and(|most| weight > most) {
                1
            } else {
                weight
            });
            if total > units {
                lacks = total - units;
                break;
            }
            (row.waits_for, row.recalled) = (None, true);
            woken.insert(row.queue.clone());
            brought.instances += 1;
        }
        brought.queues = woken.into_iter().collect();
        let left = !self.waiting(&one.key).is_empty();
        if let Some(standing) = self.limit_keys.get_mut(&one.key) {
            let pause = standing.paused_until.filter(|until| *until > now);
            let unit = one
                .unit
                .map(|unit| unit * u32::try_from(lacks).unwrap_or(u32::MAX));
            let look_in = match pause {
                Some(until) => until - now,
                None => unit.unwrap_or(LOOK_AGAIN).clamp(SHORTEST_LOOK, LOOK_AGAIN),
            };
            brought.look_in = left.then_some(look_in);
            standing.look_at = brought.look_in.map(|look_in| now + look_in);
        }
        brought
    }

    pub(in crate::memory) fn due_keys(&mut self, now: Duration, limit: usize) -> DueKeys {
        let mut due: Vec<_> = self
            .limit_keys
            .iter()
            .filter_map(|(key, standing)| Some((standing.look_at.filter(|at| *at <= now)?, key.clone())))
            .collect();
        due.sort_unstable();
        due.truncate(limit);
        let later = self.limit_keys.values().filter_map(|standing| standing.look_at);
        let next = later.filter(|at| *at > now).min();
        let keys: Vec<LimitKey> = due.into_iter().map(|(_, key)| key).collect();
        for key in &keys {
            if let Some(standing) = self.limit_keys.get_mut(key) {
                standing.look_at = Some(now + BEING_LOOKED_AT);
            }
        }
        DueKeys {
            keys,
            next: next.map(|at| at - now),
            limits_version: self.configured.version,
        }
    }

    pub(in crate::memory) fn set_limit(&mut self, now: Duration, policy: LimitPolicy) -> i64 {
        self.configured.version += 1;
        let version = self.configured.version;
        let (kind, name) = (policy.limit.kind(), policy.name.clone());
        self.look_again(now, kind, &name);
        let policy = LimitPolicy { version, ..policy };
        self.configured.limits.insert((kind, name), Arc::new(policy));
        version
    }

    pub(in crate::memory) fn remove_limit(
        &mut self,
        now: Duration,
        kind: LimitKind,
        name: &LimitName,
    ) -> bool {
        self.look_again(now, kind, name);
        let there = self.configured.limits.remove(&(kind, name.clone())).is_some();
        self.configured.version += i64::from(there);
        there
    }

    /// Has the keys of a limit looked at.
    fn look_again(&mut self, now: Duration, kind: LimitKind, name: &LimitName) {
        let of_name = |key: &&LimitKey| key.kind() == kind && key.limit_name() == name.as_str();
        let keys: Vec<LimitKey> = self.limit_keys.keys().filter(of_name).cloned().collect();
        for key in keys {
            self.look_now(&key, now);
        }
    }

    fn look_now(&mut self, key: &LimitKey, at: Duration) {
        let waiting = !self.waiting(key).is_empty();
        if let Some(standing) = self.limit_keys.get_mut(key) {
            standing.look_at = waiting.then_some(at);
        }
    }

    pub(in crate::memory) fn policies(&self) -> Policies {
        Policies {
            version: self.configured.version,
            limits: self.configured.limits.values().cloned().collect(),
        }
    }

    pub(in crate::memory) fn pause_key(&mut self, now: Duration, key: &LimitKey, pause: Option<Duration>) {
        let until = pause.map(|pause| now.saturating_add(pause));
        self.limit_keys.entry(key.clone()).or_default().paused_until = until;
        self.look_now(key, until.unwrap_or(now));
    }

    pub(in crate::memory) fn key_standing(&self, now: Duration, key: &LimitKey) -> KeyStanding {
        let Some(standing) = self.limit_keys.get(key) else {
            return KeyStanding::default();
        };
        KeyStanding {
            waiting: self.waiting(key).len() as u64,
            holder: standing.holder,
            paused_for: standing
                .paused_until
                .filter(|until| *until > now)
                .map(|until| until - now),
        }
    }

    pub(in crate::memory) fn forget_keys(&mut self, now: Duration, limit: usize) -> u64 {
        let idle = |(key, standing): &(&LimitKey, &KeyRow)| {
            standing.holder.is_none() && !standing.paused(now) && self.waiting(key).is_empty()
        };
        let idle: Vec<LimitKey> = self
            .limit_keys
            .iter()
            .filter(idle)
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect();
        for key in &idle {
            self.limit_keys.remove(key);
        }
        idle.len() as u64
    }
}

/// The most that a limit holds.
fn capacity(limit: &Limit) -> u32 {
    match *limit {
        Limit::Gate { capacity } => capacity,
        Limit::Rate { burst, .. } => burst,
        // `Limit` is non-exhaustive outside its crate; the model must learn a new one first.
        _ => unreachable!("the model does not know the limit {limit:?}"),
    }
}
