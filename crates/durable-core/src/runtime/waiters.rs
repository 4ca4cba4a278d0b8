//! Those who wait for instances in this process, of all clients of one store (rules WAIT-1, WAIT-2).
//!
//! Whoever waits takes turns at looking for all: one query per tick, and none when nobody waits. Who comes looks at
//! once, and so does everybody who waits for what ends in this process; those who do so at the same time share the query. There is no task that would have to outlive a runtime, or an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::observe;
use crate::store::{Settlement, Store};
use crate::types::InstanceId;

/// How often the store is asked while somebody waits.
const TICK: Duration = Duration::from_millis(25);
/// How long the store is left alone after it failed.
const PAUSE: Duration = Duration::from_millis(250);

/// What a look at the store found.
#[derive(Clone, Debug)]
pub(crate) enum Look {
    /// The instance stands so; `None` when it is not there.
    Found(Option<Settlement>),
    /// The store failed, for good.
    Failed(StoreError),
}

type Answer = Option<(u64, Look)>;

#[derive(Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    /// Held by whoever looks for all; the instant from which it may look again.
    tick: tokio::sync::Mutex<Option<Instant>>,
    /// Held by whoever looks for those that have changed.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// How many looks have begun.
    looks: u64,
    waited_for: BTreeMap<InstanceId, WaitedFor>,
    /// Waited for, to be looked at without waiting for a tick.
    changed: BTreeSet<InstanceId>,
    /// Why the last look failed, if it did.
    failure: Option<StoreError>,
}

/// An instance that somebody waits for.
#[derive(Default)]
struct WaitedFor {
    waiters: usize,
    /// The answer of the latest look that found it otherwise than at work.
    answer: Answer,
    /// Wakes in the order in which they came, which a watch channel does not promise: a simulation replays it.
    moved: Arc<Notify>,
}

/// Somebody who waits for an instance.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: InstanceId,
    /// Only looks after this one count: one that began before would tell of the time before the caller came.
    after: u64,
    moved: Arc<Notify>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an instance, for as long as the waiter is held.
    pub(crate) fn join(&self, id: InstanceId) -> Waiter<'_> {
        let mut state = self.lock();
        if state.waited_for.is_empty()
            && let Ok(mut not_before) = self.tick.try_lock()
        {
            // Nobody has waited; the look at this one is enough for a while.
            *not_before = Some(Instant::now() + TICK);
        }
        let after = state.looks;
        // Whoever comes looks at once, together with those who come at the same time.
        state.changed.insert(id);
        let waited_for = state.waited_for.entry(id).or_default();
        waited_for.waiters += 1;
        let moved = Arc::clone(&waited_for.moved);
        Waiter {
            waiters: self,
            id,
            after,
            moved,
        }
    }

    /// An instance ended or parked in this process: those who wait for it look at once.
    pub(crate) fn changed(&self, id: InstanceId) {
        let mut state = self.lock();
        if let Some(waited_for) = state.waited_for.get(&id) {
            // It wakes them, and one of them looks.
            waited_for.moved.notify_waiters();
            state.changed.insert(id);
        }
    }

    /// Looks for all, once a tick has passed since the last look.
    async fn tick(&self, store: &dyn Store) {
        let mut not_before = self.tick.lock().await;
        if let Some(instant) = *not_before {
            tokio::time::sleep_until(instant).await;
        }
        let ids: Vec<InstanceId> = self.lock().waited_for.keys().copied().collect();
        // Before the look, so that one that is dropped midway is not repeated at once by the next.
        *not_before = Some(Instant::now() + TICK);
        if !self.look(store, ids).await {
            *not_before = Some(Instant::now() + PAUSE);
        }
    }

    /// Looks for those that changed, all at once.
    async fn look_at_changed(&self, store: &dyn Store) {
        let _turn = self.looking.lock().await;
        let ids: Vec<InstanceId> = std::mem::take(&mut self.lock().changed).into_iter().collect();
        if !ids.is_empty() {
            // If it fails, the next tick looks at them, as at all.
            self.look(store, ids).await;
        }
    }

    /// One query, and what it tells to those who wait; whether the store could answer.
    async fn look(&self, store: &dyn Store, ids: Vec<InstanceId>) -> bool {
        let look = {
            let mut state = self.lock();
            state.looks += 1;
            state.looks
        };
        let found = match store.settlements(ids.clone()).await {
            Ok(settlements) => ids
                .into_iter()
                .zip(settlements.into_iter().map(Look::Found))
                .collect::<Vec<_>>(),
            Err(error) => {
                observe::store_error("settlements", &error);
                self.lock().failure = Some(error.clone());
                if error.is_transient() {
                    return false;
                }
                ids.into_iter()
                    .map(|id| (id, Look::Failed(error.clone())))
                    .collect()
            }
        };
        let mut state = self.lock();
        state.failure = None;
        for (id, answer) in found {
            // Who waits for an end is not woken by each look at one that is at work.
            if !matches!(answer, Look::Found(Some(Settlement::Busy)))
                && let Some(waited_for) = state.waited_for.get_mut(&id)
                // One that began later may have been faster.
                && waited_for.answer.as_ref().is_none_or(|(before, _)| *before < look)
            {
                waited_for.answer = Some((look, answer));
                waited_for.moved.notify_waiters();
            }
        }
        true
    }
}

impl Waiter<'_> {
    /// The latest answer, if this one has not had it.
    fn news(&mut self) -> Option<Look> {
        let state = self.waiters.lock();
        let (look, answer) = state.waited_for.get(&self.id)?.answer.as_ref()?;
        if *look <= self.after {
            return None;
        }
        self.after = *look;
        Some(answer.clone())
    }

    /// The next answer of the store, other than that it is at work.
    ///
    /// # Cancel safety
    /// Nothing is lost: another waiter takes over the looking.
    pub(crate) async fn next(&mut self, store: &dyn Store) -> Look {
        loop {
            // Made before the looks, so that what comes between them is not missed.
            let moved = Arc::clone(&self.moved);
            let moved = moved.notified();
            if let Some(answer) = self.news() {
                return answer;
            }
            if self.waiters.lock().changed.contains(&self.id) {
                self.waiters.look_at_changed(store).await;
                continue;
            }
            tokio::select! {
                biased;
                () = moved => {}
                () = self.waiters.tick(store) => {}
            }
        }
    }
}

impl Waiter<'_> {
    /// One more look, without waiting for the tick, together with others who do the same; `None` if it is at work.
    pub(crate) async fn last_look(&mut self, store: &dyn Store) -> Result<Option<Look>, StoreError> {
        self.waiters.lock().changed.insert(self.id);
        self.waiters.look_at_changed(store).await;
        match self.news() {
            Some(answer) => Ok(Some(answer)),
            None => match &self.waiters.lock().failure {
                Some(error) => Err(error.clone()),
                None => Ok(None),
            },
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.waiters.lock();
        let Some(waited_for) = state.waited_for.get_mut(&self.id) else {
            return;
        };
        waited_for.waiters -= 1;
        if waited_for.waiters == 0 {
            state.waited_for.remove(&self.id);
            state.changed.remove(&self.id);
        }
    }
}
