//! Random histories, on which Postgres and the in-memory model must agree.

use std::sync::Arc;

use durable_core::Store;
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use durable_testing::histories::{Settings, check};
use durable_testing::memory::MemoryStore;

#[tokio::test]
async fn postgres_and_the_model_agree_on_random_histories() {
    // contract: INS-3, ID-2, ID-3, CLAIM-1, CLAIM-4, CLAIM-6, LEASE-2, LEASE-4, OUT-2, OUT-3, OPS-3
    let database = TestDatabase::new().await.expect("a database");
    // Nothing here is about crashes of the server, and waiting for its disk is most of the time.
    let statement = format!("ALTER DATABASE {} SET synchronous_commit TO off", database.name());
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
        .execute(&database.pool(1).await.expect("a pool"))
        .await
        .expect("altered");
    // One connection: a refused statement then has let its rows go before the next call is sent.
    let store = PgStore::builder(&database.url())
        .expect("a url")
        .max_connections(1)
        .connect()
        .await
        .expect("connected");
    let model = async || {
        let model: Arc<dyn Store> = Arc::new(MemoryStore::new());
        model
    };
    // A database for each history would cost more than the history. Lanes stay, as in a real database.
    let fresh = async || {
        sqlx::raw_sql(
            "DELETE FROM durable.claims; DELETE FROM durable.workers; DELETE FROM durable.ready; \
             DELETE FROM durable.scheduled; DELETE FROM durable.finished; DELETE FROM durable.kept_children; \
             DELETE FROM durable.signals; DELETE FROM durable.signal_keys; DELETE FROM durable.deadlines; \
             DELETE FROM durable.cancel_requests; DELETE FROM durable.outgoing_signals; \
             DELETE FROM durable.instances",
        )
        .execute(store.pool())
        .await
        .expect("emptied");
        Arc::<dyn Store>::from(store.clone())
    };
    if let Err(disagreement) = check(Settings::from_environment(), model, fresh).await {
        panic!("{disagreement}");
    }
}
