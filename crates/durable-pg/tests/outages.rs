//! Backends that are terminated and servers that are restarted under load.

use std::time::Duration;

use durable_core::{Client, Engine, InstanceId};
use durable_pg::PgStore;
use durable_testing::servers::{Durability, Shutdown};
use durable_testing::{PostgresServer, TestDatabase};

use crate::trail::{Ledger, Trail, insert_trails};

const LIMIT: Duration = Duration::from_secs(90);
const ROUNDS: u32 = 4;

async fn engine(url: &str, name: &str) -> Engine {
    Engine::builder(PgStore::connect(url).await.expect("connected"))
        .name(name)
        .queue(durable_core::Queue::new("default").concurrency(20))
        .machine::<Trail>()
        .poll_interval(Duration::from_millis(100))
        .lease(Duration::from_secs(3))
        .start()
        .await
        .expect("started")
}

/// Waits for results through outages: a read that fails is asked again.
async fn all_done(client: &Client, ids: &[InstanceId]) {
    let wait = async {
        for id in ids {
            loop {
                match client.result::<u32>(*id, LIMIT).await {
                    Ok(_) => break,
                    Err(durable_core::WaitError::Store(_)) => tokio::task::yield_now().await,
                    Err(other) => panic!("{other}"),
                }
            }
        }
    };
    tokio::time::timeout(LIMIT, wait)
        .await
        .expect("the store came back");
}

/// Waits until this many runs are in the ledger: the load is on its way.
async fn under_way(ledger: &Ledger, runs: usize) {
    while ledger.runs().await.len() < runs {
        tokio::task::yield_now().await;
    }
}

/// Nothing is left in flight, and each instance is in one place.
async fn assert_whole(ledger: &Ledger) {
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM durable.ready) + (SELECT count(*) FROM durable.scheduled) \
         + (SELECT count(*) FROM durable.claims) + (SELECT count(*) FROM durable.workers)",
    )
    .fetch_one(ledger.pool())
    .await
    .expect("counted");
    assert_eq!(left, 0, "no place row, claim or worker is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_backends_under_load_lose_nothing() {
    // contract: CORE-2, OUT-3, CLAIM-6
    let database = TestDatabase::new().await.expect("a database");
    let ledger = Ledger::create(&database).await;
    let engine = engine(&database.url(), "terminated").await;
    let client = engine.client().clone();
    let ids = insert_trails(&client, &database.url(), 200, ROUNDS).await;
    for round in 1..=8 {
        under_way(&ledger, round * 80).await;
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'durable'",
        )
        .execute(ledger.pool())
        .await
        .expect("terminated");
    }
    all_done(&client, &ids).await;
    ledger.is_explained_by_at_least_once(&ids, 4).await;
    ledger.never_went_back().await;
    engine.shutdown().await;
    assert_whole(&ledger).await;
}

async fn restarted_under_load(shutdown: Shutdown) {
    let mut server = PostgresServer::start_own(Durability::Full)
        .await
        .expect("a server");
    let database = TestDatabase::on(&server).await.expect("a database");
    let ledger = Ledger::create(&database).await;
    let engines = [
        engine(&database.url(), "one").await,
        engine(&database.url(), "two").await,
    ];
    let client = engines[0].client().clone();
    let ids = insert_trails(&client, &database.url(), 200, ROUNDS).await;
    for round in 1..=2 {
        under_way(&ledger, round * 250).await;
        server.restart(shutdown).await.expect("restarted");
        // The observer's connections are gone with the server.
        while sqlx::query("SELECT").execute(ledger.pool()).await.is_err() {}
    }
    all_done(&client, &ids).await;
    ledger.is_explained_by_at_least_once(&ids, 4).await;
    if shutdown == Shutdown::Fast {
        ledger.never_went_back().await;
    }
    for engine in engines {
        engine.shutdown().await;
    }
    assert_whole(&ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_restart_of_the_server_under_load_loses_nothing() {
    // contract: CORE-2, CORE-3, LEASE-4
    restarted_under_load(Shutdown::Fast).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_under_load_loses_nothing() {
    // contract: CORE-2, CORE-3, CLAIM-4
    restarted_under_load(Shutdown::Immediate).await;
}
