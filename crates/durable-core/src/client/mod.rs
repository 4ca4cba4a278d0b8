//! What a program asks of the store without running anything: insert, look up, signal, operate, wait.

mod operate;
mod signal;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use signal::SendSignal;
pub use wait::Settled;

use crate::error::{InsertError, InvalidValue, StoreError};
use crate::insert::Insert;
use crate::observe;
use crate::runtime::local::Local;
use crate::store::{Inserted, NewInstance, Snapshot, Store};
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
}

impl Client {
    /// A client of a store.
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Self {
        let store = store.into();
        let local = Local::of(&store.identity());
        Self { store, local }
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
        let queues: Vec<_> = entries.iter().map(|entry| entry.queue.clone()).collect();
        let inserted = self.store.insert(entries).await?;
        let mut counts: BTreeMap<&QueueName, u64> = BTreeMap::new();
        for (queue, fate) in queues.iter().zip(&inserted) {
            *counts.entry(queue).or_default() += u64::from(!fate.is_duplicate());
        }
        for (queue, count) in counts {
            observe::inserted(queue, count);
            self.local.poke(queue);
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
