//! What the statements touch among a million instances.

use durable_pg::PgStore;
use durable_testing::TestDatabase;
use sqlx::PgConnection;

use crate::filled::{Rows, fill, prepare, run};
use crate::hot_statements::{HotStatement, LARGE};

/// A million. The rows at the head of the queue are of a machine that the worker does not know, and what is
/// scheduled is more urgent than what is ready.
const MANY: Rows = Rows {
    ready: 500,
    foreign: 99_000,
    scheduled: 100_000,
    overdue: 10,
    executing: 60_000,
    orphaned: 39_990,
    terminal: 640_000,
    parked: 60_000,
};

/// Just what the statements find something to do with.
const FEW: Rows = Rows {
    ready: 500,
    foreign: 20,
    scheduled: 20,
    overdue: 10,
    executing: 100,
    orphaned: 400,
    terminal: 100,
    parked: 100,
};

/// The pages that each statement touches.
async fn buffers(rows: Rows) -> Vec<(&'static HotStatement, u64)> {
    let database = TestDatabase::new().await.expect("a database");
    let store = PgStore::connect(&database.url()).await.expect("connected");
    let mut connection = store.pool().acquire().await.expect("a connection");
    prepare(&mut connection).await;
    fill(&mut connection, rows, 0).await;
    vacuum(&mut connection).await;
    let mut measured = Vec::new();
    for statement in &LARGE {
        statement.prepare(&mut connection).await;
        let plan = statement.explain(&mut connection).await;
        assert_eq!(
            statement.faults(&plan),
            Vec::<String>::new(),
            "{}",
            statement.name
        );
        measured.push((statement, plan.buffers()));
    }
    measured
}

/// As autovacuum leaves the tables; it also sets the hint bits that the first reader would.
async fn vacuum(connection: &mut PgConnection) {
    for table in [
        "instances",
        "ready",
        "scheduled",
        "claims",
        "finished",
        "signals",
        "signal_keys",
        "deadlines",
    ] {
        run(connection, &format!("VACUUM (ANALYZE, FREEZE) durable.{table}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_a_million_instances_a_batch_costs_what_it_takes() {
    // contract: CLAIM-2, FSM-5
    let (few, many) = (buffers(FEW).await, buffers(MANY).await);
    for ((statement, few), (_, many)) in few.into_iter().zip(many) {
        // The indexes are one or two levels deeper, and neighbours lie on more pages.
        let most = few + few / 2 + 20;
        assert!(
            many <= most,
            "{} touches {many} pages among a million instances, {few} among a thousand",
            statement.name
        );
    }
}
