//! Within one process: nothing can be cut, and nobody else can send.

use durable_core::Poking;
use durable_testing::poke_conformance::Subject;

struct Local;

impl Subject for Local {
    const ONE_PROCESS: bool = true;

    async fn fresh() -> Self {
        Self
    }

    fn poking(&self) -> Poking {
        Poking::Local
    }

    async fn cut(&mut self) {}

    async fn restore(&mut self) {}

    async fn inject(&self, _bytes: &[u8]) {}
}

durable_testing::poke_conformance_tests!(Local);
