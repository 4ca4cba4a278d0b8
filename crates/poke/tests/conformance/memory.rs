//! The transport in memory, which other tests rely on.

use durable_core::Poking;
use durable_testing::MemoryPokes;
use durable_testing::poke_conformance::Subject;

struct Memory(MemoryPokes);

impl Subject for Memory {
    async fn fresh() -> Self {
        Self(MemoryPokes::new())
    }

    fn poking(&self) -> Poking {
        self.0.node().into()
    }

    async fn cut(&mut self) {
        self.0.cut();
    }

    async fn restore(&mut self) {
        self.0.restore();
    }

    async fn inject(&self, bytes: &[u8]) {
        self.0.inject(bytes);
    }
}

durable_testing::poke_conformance_tests!(Memory);
