//! Pub/Sub of a real Redis, which is killed and started again.

use durable_core::Poking;
use durable_testing::RedisServer;
use durable_testing::poke_conformance::Subject;

struct Redis(RedisServer);

impl Subject for Redis {
    async fn fresh() -> Self {
        Self(RedisServer::start_own().await.expect("a server"))
    }

    fn poking(&self) -> Poking {
        durable_poke::from_url(self.0.url()).expect("an address")
    }

    async fn cut(&mut self) {
        self.0.stop().await.expect("killed");
    }

    async fn restore(&mut self) {
        self.0.start_again().await.expect("started");
    }

    async fn inject(&self, bytes: &[u8]) {
        let client = redis::Client::open(self.0.url()).expect("an address");
        let mut connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("connected");
        redis::cmd("PUBLISH")
            .arg("durable_pokes")
            .arg(bytes)
            .query_async::<()>(&mut connection)
            .await
            .expect("sent");
    }
}

durable_testing::poke_conformance_tests!(Redis);
