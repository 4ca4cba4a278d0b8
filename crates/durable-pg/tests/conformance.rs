//! The conformance suite on Postgres, in a database for each case.

use std::sync::Arc;

use durable_core::Store;
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use durable_testing::conformance::Subject;

struct Postgres {
    store: PgStore,
    _database: TestDatabase,
}

impl Subject for Postgres {
    async fn fresh() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        Self {
            store,
            _database: database,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().into()
    }
}

durable_testing::conformance_tests!(Postgres);
