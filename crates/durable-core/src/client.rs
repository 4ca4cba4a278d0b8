//! What a program asks of the store without running anything: insert, look up, wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::error::{Failure, FailureKind, InsertError, InvalidValue, StoreError, WaitError};
use crate::insert::Insert;
use crate::observe;
use crate::runtime::local::Local;
use crate::store::{Inserted, NewInstance, Snapshot, Store};
use crate::types::{CorrelationKey, InstanceId, QueueName, Status};

/// Inserts instances and waits for them. Needs no engine in the process; a web server holds one of these.
/// Cheap to clone.
///
/// # Cancel safety
/// A call that is dropped midway may or may not have taken effect; it harms nothing.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    local: Arc<Local>,
}

/// How often the row is read while waiting for an instance that runs in another process.
const WAIT_TICK: Duration = Duration::from_millis(250);

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
        inserted.into_iter().next().ok_or_else(|| {
            let message = "the store gave no answer for an inserted instance".to_owned();
            InsertError::Store(StoreError::Fatal { message })
        })
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

    /// Waits until an instance is done, and gives its result. An instance that an engine of this process
    /// finishes is answered at once, one of another process within 250 ms. The answer is always read from
    /// the store.
    ///
    /// # Errors
    /// [`WaitError`]: failed or cancelled, not found, still at work after `limit`, or a result of another
    /// type.
    ///
    /// # Cancel safety
    /// Nothing is lost: the work goes on, and waiting again is the retry.
    pub async fn result<R: DeserializeOwned>(&self, id: InstanceId, limit: Duration) -> Result<R, WaitError> {
        let snapshot = self.settled(id, limit).await?;
        match (snapshot.status, snapshot.result) {
            (Status::Done, Some(result)) => {
                result.decode().map_err(|source| WaitError::Decode { id, source })
            }
            (status, _) => {
                let unknown = || Failure::new(FailureKind::Stopped, format!("it is {status}"));
                Err(WaitError::Failed {
                    id,
                    failure: snapshot.failure.unwrap_or_else(unknown),
                })
            }
        }
    }

    async fn settled(&self, id: InstanceId, limit: Duration) -> Result<Snapshot, WaitError> {
        let deadline = Instant::now() + limit;
        loop {
            let notify = self.local.subscribe(id);
            let notified = notify.notified();
            tokio::pin!(notified);
            // Listening before the row is read: an end in between is not missed.
            notified.as_mut().enable();
            let snapshot = self.snapshot(id).await?.ok_or(WaitError::NotFound { id })?;
            if snapshot.status.is_terminal() {
                return Ok(snapshot);
            }
            if Instant::now() >= deadline {
                return Err(WaitError::Busy { id, waited: limit });
            }
            let _ = timeout_at(deadline.min(Instant::now() + WAIT_TICK), notified).await;
        }
    }
}
