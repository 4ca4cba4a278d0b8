//! The conformance suite on the in-memory model.

use std::sync::Arc;

use durable_core::Store;
use durable_testing::conformance::Subject;
use durable_testing::memory::MemoryStore;

struct Memory(MemoryStore);

impl Subject for Memory {
    async fn fresh() -> Self {
        Self(MemoryStore::new())
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }
}

durable_testing::conformance_tests!(Memory);
