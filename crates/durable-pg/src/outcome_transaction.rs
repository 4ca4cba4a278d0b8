//! Commits a step's own writes with its outcome (rule OPS-8).

use async_trait::async_trait;
use durable_core::store::{Commit, CommitFate, CommitRequest, Committed, OutcomeTransaction};
use durable_core::{StoreError, WorkerId};
use sqlx::{Postgres, Transaction};

use crate::commit::commit_whole;
use crate::connect::{PLANNER, PgStore};
use crate::operation::lock;

/// How long the outcome waits for a row that another transaction holds. By then the step has done its writes, so it
/// waits longer than a group commit would.
const LONGEST_WAIT: &str = "500ms";

/// A transaction of a step, to be committed with its outcome; from [`PgStore::attach`].
pub struct AttachedTransaction {
    store: PgStore,
    transaction: Transaction<'static, Postgres>,
}

impl PgStore {
    /// Attaches a transaction that a step has opened, on any pool of the same database, to the outcome that the step
    /// returns: both are committed or neither (rule OPS-8). Hand it to `with_transaction` of `durable-core`.
    ///
    /// The step holds a connection for as long as the transaction is open, so open it late, and on a pool of your own.
    /// The outcome is committed alone, not with those of other steps.
    #[must_use]
    pub fn attach(&self, transaction: Transaction<'static, Postgres>) -> AttachedTransaction {
        AttachedTransaction {
            store: self.clone(),
            transaction,
        }
    }
}

#[async_trait]
impl OutcomeTransaction for AttachedTransaction {
    async fn commit(self: Box<Self>, worker: WorkerId, outcome: Commit) -> Result<Committed, StoreError> {
        let mut transaction = self.transaction;
        let work = |shared: std::sync::Arc<crate::connect::Shared>| async move {
            let (names, values): (Vec<&str>, Vec<&str>) = PLANNER.into_iter().unzip();
            sqlx::query(
                "SELECT set_config(name, value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)",
            )
            .bind(names)
            .bind(values)
            .execute(&mut *transaction)
            .await?;
            lock(&mut transaction, &shared, &[outcome.id.get()], true, LONGEST_WAIT).await?;
            let request = CommitRequest::new(worker, [outcome], Vec::new());
            let committed = commit_whole(&mut transaction, &shared, &request).await?;
            if committed.fates == [CommitFate::Committed] {
                transaction.commit().await?;
            } else {
                transaction.rollback().await?;
            }
            Ok(committed)
        };
        self.store.run(work).await
    }
}
