//! LISTEN and NOTIFY of a real Postgres, between engines that share nothing but their data.

use std::sync::Arc;
use std::time::Duration;

use durable_core::poke::{LARGEST_MESSAGE, Message, Node, Poke, PokeTransport as _, Received};
use durable_core::{Client, Context, Engine, Insert, Job, JobError, PokeHealth, QueueName, Store};
use durable_poke::PostgresPokes;
use durable_testing::{MemoryStore, TestDatabase};
use serde::{Deserialize, Serialize};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Long before any poll.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
pub(crate) struct Errand;

impl Job for Errand {
    const NAME: &'static str = "errand";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

pub(crate) async fn until(client: &Client, what: impl Fn(&PokeHealth) -> bool) {
    let so = async {
        while !client.poke_health().iter().all(&what) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let so = tokio::time::timeout(WITHIN, so).await;
    so.unwrap_or_else(|_| panic!("never so: {:?}", client.poke_health()));
}

#[tokio::test]
async fn the_largest_message_arrives_as_it_was_sent() {
    // contract: POKE-1
    let database = TestDatabase::new().await.expect("a database");
    let (one, other) = (
        PostgresPokes::new(database.url()),
        PostgresPokes::new(database.url()),
    );
    let node = Node::new(MemoryStore::new());
    let mut one = one.connect(&node).await.expect("connected");
    let mut other = other.connect(&node).await.expect("connected");
    let pokes = (0..200).map(|number| Poke::Work {
        queue: QueueName::new(format!("{number:0>3}{}", "'☃\"".repeat(50))).expect("a name"),
        due: Duration::ZERO,
    });
    let messages = Message::pack(7, pokes.collect());
    let largest = messages
        .iter()
        .max_by_key(|message| message.encode().len())
        .expect("some");
    assert!(largest.encode().len() > LARGEST_MESSAGE - 400);
    one.sender.send(largest).await.expect("sent");
    for link in [&mut other, &mut one] {
        let received = link.receiver.receive().await.expect("received");
        let Received::Message(bytes) = received else {
            panic!("{received:?}")
        };
        assert_eq!(Message::decode(&bytes).as_ref(), Ok(largest));
    }
}

#[tokio::test]
async fn work_of_another_process_starts_without_a_poll_also_after_the_connections_were_cut() {
    // contract: POKE-1, POKE-5
    let database = TestDatabase::new().await.expect("a database");
    let pool = database.pool(1).await.expect("a pool");
    let store = MemoryStore::new();
    let engine = Engine::builder(Arc::new(store.in_another_process()) as Arc<dyn Store>)
        .queue("default")
        .job::<Errand>()
        .poll_interval(HOUR)
        .poke(Arc::new(PostgresPokes::new(database.url())))
        .start()
        .await
        .expect("started");
    let web = Client::new(Arc::new(store.in_another_process()) as Arc<dyn Store>)
        .poking(Arc::new(PostgresPokes::new(database.url())));
    for round in 1..=3 {
        for client in [engine.client(), &web] {
            until(client, |health| health.connected && health.connections == round).await;
        }
        let received = engine.client().poke_health()[0].received;
        let id = web.insert(Insert::job(Errand)).await.expect("inserted").id();
        web.result::<()>(id, WITHIN)
            .await
            .expect("done, an hour before the poll");
        until(engine.client(), |health| health.received > received).await;
        // Both ends of both processes.
        let cut: i64 = sqlx::query_scalar(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid()",
        )
        .fetch_one(&pool)
        .await
        .expect("cut");
        assert_eq!(cut, 4);
    }
    until(&web, |health| health.connections == 4).await;
    assert!(web.poke_health()[0].last_error.is_some());
    engine.shutdown().await;
}
