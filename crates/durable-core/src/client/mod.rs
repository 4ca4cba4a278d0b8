//! What a program asks of the store without running anything: insert, look up, signal, operate, wait.

mod operate;
mod signal;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use signal::SendSignal;
pub use wait::Settled;

use crate::error::{InsertError, InvalidValue, StoreError};
use crate::insert::Insert;
use crate::observe;
use crate::poke::{PokeHealth, Pokes, Poking};
use crate::runtime::hub::{HubHandle, Hubs};
use crate::runtime::local::Local;
use crate::store::{Eligible, Inserted, NewInstance, Snapshot, Store};
use crate::types::{CorrelationKey, InstanceId, QueueName};

/// Inserts instances, signals and cancels them, and waits for them. Needs no engine in the process; a web server holds one of these.
/// Cheap to clone.
///
/// # Cancel safety
/// A call that is dropped midway may or may not have taken effect; it harms nothing.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    local: Arc<Local>,
    /// Held for its drop.
    _hub: Option<HubHandle>,
}

impl Client {
    /// A client of a store.
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Self {
        let store = store.into();
        let local = Local::of(&store.identity());
        Self {
            store,
            local,
            _hub: None,
        }
    }

    /// A client that also tells other processes of the work that it makes, and hears from them, for as long as it or a
    /// clone of it lives. For processes without an engine: the client of an engine does as its engine.
    ///
    /// # Panics
    /// Outside of a tokio runtime, if it is a transport.
    #[must_use]
    pub fn poking(mut self, poking: impl Into<Poking>) -> Self {
        self._hub = match poking.into() {
            Poking::Transport(transport) => Some(Hubs::join(&self.local, &self.store, &transport)),
            Poking::None | Poking::Local => None,
        };
        self
    }

    /// Keeps the remote leg of an engine, too.
    pub(crate) fn held(self, hub: Option<HubHandle>) -> Self {
        Self { _hub: hub, ..self }
    }

    /// How the connections for pokes of this process are; empty without a transport.
    #[must_use]
    pub fn poke_health(&self) -> Vec<PokeHealth> {
        self.local.hubs.health()
    }

    /// Makes a new secret for the processes that poke each other directly. They change over within two minutes, without a
    /// message lost; then messages that were made with an older one are refused (rule POKE-6).
    ///
    /// # Errors
    /// The store's.
    pub async fn renew_poke_secret(&self) -> Result<(), StoreError> {
        self.store.renew_secret().await
    }

    /// Tells of work that a transaction of yours has made, after it committed; see [`Pokes`].
    pub fn poke(&self, pokes: &Pokes) {
        pokes.queues.iter().for_each(|queue| self.local.poke(queue));
        if pokes.anything {
            self.local.poke_all();
        }
    }

    /// Inserts one instance, and pokes its queue in this process.
    ///
    /// # Errors
    /// [`InsertError`]; then nothing was written, save after
    /// [`StoreError::Unknown`], when a correlation key makes a second try safe.
    pub async fn insert<R>(&self, insert: Insert<R>) -> Result<Inserted, InsertError> {
        let inserted = self.insert_encoded(vec![insert.encode()?]).await?;
        inserted
            .into_iter()
            .next()
            .ok_or_else(|| InsertError::Store(no_answer("an inserted instance")))
    }

    /// Inserts a batch of any size in one statement; the answers stand in the caller's order. All of it is
    /// inserted, save duplicates, or nothing.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), for the first entry with a fault.
    pub async fn insert_all<R>(
        &self,
        inserts: impl IntoIterator<Item = Insert<R>>,
    ) -> Result<Vec<Inserted>, InsertError> {
        let entries = inserts
            .into_iter()
            .map(Insert::encode)
            .collect::<Result<Vec<_>, _>>()?;
        self.insert_encoded(entries).await
    }

    /// Inserts a batch of different machines, each encoded with [`Insert::encode`].
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn insert_encoded(&self, entries: Vec<NewInstance>) -> Result<Vec<Inserted>, InsertError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let queues: Vec<_> = entries
            .iter()
            .map(|entry| (entry.queue.clone(), entry.eligible))
            .collect();
        let inserted = self.store.insert(entries).await?;
        let mut counts: BTreeMap<&QueueName, (u64, Duration)> = BTreeMap::new();
        for ((queue, eligible), fate) in queues.iter().zip(&inserted) {
            if !fate.is_duplicate() {
                let due = match eligible {
                    Eligible::In(delay) => *delay,
                    // By whose clock? The store says, when it is asked.
                    Eligible::At(_) => Duration::ZERO,
                };
                let (count, first) = counts.entry(queue).or_insert((0, due));
                *count += 1;
                *first = due.min(*first);
            }
        }
        for (queue, (count, due)) in counts {
            observe::inserted(queue, count);
            self.local.poke_in(queue, due);
        }
        Ok(inserted)
    }

    /// The instance as it stands; `None` when it is not there.
    ///
    /// # Errors
    /// The store's.
    pub async fn snapshot(&self, id: InstanceId) -> Result<Option<Snapshot>, StoreError> {
        Ok(self.store.snapshots(vec![id]).await?.into_iter().next().flatten())
    }

    /// The instance that holds a correlation key.
    ///
    /// # Errors
    /// [`InsertError::Invalid`] for a key that no instance can have; the store's.
    pub async fn find(
        &self,
        key: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Result<Option<InstanceId>, InsertError> {
        let key: Result<CorrelationKey, InvalidValue> = CorrelationKey::new(key);
        Ok(self.store.find(key?).await?)
    }
}

/// A store that gives fewer answers than it was asked for has a bug.
fn no_answer(what: &str) -> StoreError {
    StoreError::Fatal {
        message: format!("the store gave no answer for {what}"),
    }
}
