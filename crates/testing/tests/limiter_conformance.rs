//! The conformance suite of limiters on the in-memory model.

use std::sync::Arc;

use durable_core::Limiter;
use durable_testing::MemoryLimiter;
use durable_testing::limiter_conformance::LimiterSubject;

struct Memory(MemoryLimiter);

impl LimiterSubject for Memory {
    async fn fresh() -> Self {
        Self(MemoryLimiter::new())
    }

    fn limiter(&self) -> Arc<dyn Limiter> {
        Arc::new(self.0.clone())
    }
}

durable_testing::limiter_conformance_tests!(Memory);
