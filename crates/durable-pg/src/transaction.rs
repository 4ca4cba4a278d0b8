//! Inserts in a transaction of the caller (rule INS-2).

use durable_core::store::NewInstance;
use durable_core::{Insert, InsertError, Inserted, StoreError};
use sqlx::PgConnection;

use crate::connect::PgStore;
use crate::error::store_error;
use crate::insert::insert;

/// Inserts in the transaction of a connection: the instances exist exactly if the caller commits.
///
/// Schedulers find them at their next poll after the commit.
pub struct TransactionClient<'c> {
    store: PgStore,
    connection: &'c mut PgConnection,
}

impl PgStore {
    /// Inserts through the caller's own connection or transaction (`&mut *transaction`).
    pub fn in_transaction<'c>(&self, connection: &'c mut PgConnection) -> TransactionClient<'c> {
        TransactionClient {
            store: self.clone(),
            connection,
        }
    }
}

impl TransactionClient<'_> {
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
            insert(self.connection, &shared.statements, &entries, &lanes).await
        };
        work.await
            .map_err(|error: sqlx::Error| store_error(&error).into())
    }
}
