//! Pub/Sub of a real Redis, which is killed and started again.

use std::sync::Arc;
use std::time::Duration;

use durable_core::{Client, Engine, Insert, Store};
use durable_poke::RedisPokes;
use durable_testing::{MemoryStore, RedisServer};

use crate::postgres::{Errand, HOUR, WITHIN, until};

#[tokio::test]
async fn work_of_another_process_starts_without_a_poll_also_after_the_server_was_killed() {
    // contract: POKE-1, POKE-5
    let mut server = RedisServer::start_own().await.expect("a server");
    let store = MemoryStore::new();
    let engine = Engine::builder(Arc::new(store.in_another_process()) as Arc<dyn Store>)
        .queue("default")
        .job::<Errand>()
        .poll_interval(HOUR)
        .poke(Arc::new(RedisPokes::new(server.url())))
        .start()
        .await
        .expect("started");
    let web = Client::new(Arc::new(store.in_another_process()) as Arc<dyn Store>)
        .poking(Arc::new(RedisPokes::new(server.url())));
    for round in 1..=2 {
        for client in [engine.client(), &web] {
            until(client, |health| health.connected && health.connections == round).await;
        }
        let received = engine.client().poke_health()[0].received;
        let id = web.insert(Insert::job(Errand)).await.expect("inserted").id();
        web.result::<()>(id, WITHIN)
            .await
            .expect("done, an hour before the poll");
        until(engine.client(), |health| health.received > received).await;
        server.stop().await.expect("killed");
        for client in [engine.client(), &web] {
            // Who only sends finds out at the next message, or by its receiver.
            until(client, |health| !health.connected && health.last_error.is_some()).await;
        }
        let own = engine
            .client()
            .insert(Insert::job(Errand))
            .await
            .expect("inserted")
            .id();
        let done = engine.client().result::<()>(own, Duration::from_secs(60)).await;
        done.expect("the local leg works");
        server.start_again().await.expect("started");
    }
    engine.shutdown().await;
}
