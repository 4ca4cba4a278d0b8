//! Inserts and signals in a transaction of the caller (rules INS-2, OUT-6).

use durable_core::poke::Pokes;
use durable_core::store::NewInstance;
use durable_core::{DeliverError, Insert, InsertError, Inserted, SendSignal, StoreError};
use sqlx::PgConnection;

use crate::connect::PgStore;
use crate::error::store_error;
use crate::insert::{Batch, insert};
use crate::signals::send;

/// Inserts and signals in the transaction of a connection: both take effect exactly if the caller commits.
///
/// Schedulers find what became runnable at their next poll after the commit, or at once when they are told:
///
/// ```no_run
/// # use durable_core::{Client, Insert};
/// # use durable_pg::{PgStore, sqlx::PgPool};
/// # async fn order<R>(store: &PgStore, client: &Client, pool: &PgPool, new: Insert<R>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// let mut durable = store.in_transaction(&mut transaction);
/// durable.insert(new).await?;
/// let pokes = durable.pokes();
/// transaction.commit().await?;
/// client.poke(&pokes);
/// # Ok(())
/// # }
/// ```
pub struct TransactionClient<'c> {
    store: PgStore,
    pokes: Pokes,
    connection: &'c mut PgConnection,
}

impl PgStore {
    /// Inserts and signals through the caller's own connection or transaction (`&mut *transaction`).
    pub fn in_transaction<'c>(&self, connection: &'c mut PgConnection) -> TransactionClient<'c> {
        TransactionClient {
            store: self.clone(),
            pokes: Pokes::default(),
            connection,
        }
    }
}

impl TransactionClient<'_> {
    /// Whom to tell once the transaction has committed, with [`Client::poke`](durable_core::Client::poke) (rule INS-2).
    pub fn pokes(&self) -> Pokes {
        self.pokes.clone()
    }

    /// Inserts one instance.
    ///
    /// # Errors
    /// [`InsertError`]. After an error of the database the caller's transaction is aborted, as after any
    /// failed statement.
    pub async fn insert<R>(&mut self, new: Insert<R>) -> Result<Inserted, InsertError> {
        let inserted = self.insert_encoded(vec![new.encode()?]).await?;
        inserted.into_iter().next().ok_or_else(|| {
            let message = "the database gave no answer for an inserted instance".to_owned();
            StoreError::Fatal { message }.into()
        })
    }

    /// Inserts a batch in one statement; the answers stand in the caller's order.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn insert_encoded(&mut self, entries: Vec<NewInstance>) -> Result<Vec<Inserted>, InsertError> {
        let shared = &self.store.shared;
        let lanes = entries.iter().map(|entry| (&entry.queue, &entry.machine));
        let work = async {
            let lanes = shared.lanes.ids(shared, lanes).await?;
            let batch = Batch {
                entries: &entries,
                lanes: &lanes,
                parents: None,
            };
            insert(self.connection, &shared.statements, batch).await
        };
        let inserted = work
            .await
            .map_err(|error: sqlx::Error| InsertError::from(store_error(&error)))?;
        entries.iter().for_each(|entry| self.pokes.queue(&entry.queue));
        Ok(inserted)
    }

    /// Sends a signal when the transaction commits, and says whether there is a target now: `false` means that it is
    /// missing or terminal, and nothing will be sent. One that has ended by the commit drops the signal. The target is
    /// locked for no longer than the commit takes.
    ///
    /// # Errors
    /// [`DeliverError`]. After an error of the database the caller's transaction is aborted, as after any failed
    /// statement.
    pub async fn send(&mut self, signal: SendSignal) -> Result<bool, DeliverError> {
        Ok(self.send_all([signal]).await? == [true])
    }

    /// Sends a batch in one statement; the answers stand in the caller's order.
    ///
    /// # Errors
    /// As [`send`](Self::send), for the first with a fault; then none was sent.
    pub async fn send_all(
        &mut self,
        signals: impl IntoIterator<Item = SendSignal>,
    ) -> Result<Vec<bool>, DeliverError> {
        let signals = signals
            .into_iter()
            .map(SendSignal::encode)
            .collect::<Result<Vec<_>, _>>()?;
        let sent = send(self.connection, &self.store.shared.statements, &signals)
            .await
            .map_err(|error| DeliverError::from(store_error(&error)))?;
        if sent.contains(&true) {
            // Whom it wakes, and where, is known at the commit only.
            self.pokes.anything();
        }
        Ok(sent)
    }
}
