//! Every hot statement keeps its plan, whatever the statistics say, and whether it is planned for its arguments
//! or for any.

use durable_pg::PgStore;
use durable_testing::TestDatabase;
use sqlx::PgConnection;

use crate::filled::{Rows, fill, finish_everything, prepare, run};
use crate::hot_statements::{HotStatement, INSERTS, OTHERS};

/// Enough that every table has hundreds of pages, save `claims` and `finished`, which hold a row per batch.
const ROWS: Rows = Rows {
    ready: 4000,
    foreign: 4000,
    scheduled: 4000,
    overdue: 10,
    executing: 4000,
    orphaned: 2000,
    terminal: 8000,
    parked: 4000,
};

/// What the planner knows when the statements meet [`ROWS`].
#[derive(Clone, Copy, Debug)]
enum Statistics {
    /// No table was ever analysed.
    None,
    /// All tables were analysed while they were empty.
    OfEmptyTables,
    /// All tables were analysed when a queue had just been worked off: everything terminal, dead rows elsewhere.
    OfAllTerminal,
    /// The same, and then all was collected: every table has pages and, as far as is known, no row.
    OfAllCollected,
    /// All tables have just been analysed.
    Fresh,
}

const STATISTICS: [Statistics; 5] = [
    Statistics::None,
    Statistics::OfEmptyTables,
    Statistics::OfAllTerminal,
    Statistics::OfAllCollected,
    Statistics::Fresh,
];

const TABLES: [&str; 10] = [
    "instances",
    "ready",
    "scheduled",
    "claims",
    "finished",
    "workers",
    "lanes",
    "signals",
    "signal_keys",
    "deadlines",
];

async fn analyse(connection: &mut PgConnection) {
    for table in TABLES {
        run(connection, &format!("ANALYZE durable.{table}")).await;
    }
}

async fn without_autovacuum(connection: &mut PgConnection) {
    for table in TABLES {
        run(
            connection,
            &format!("ALTER TABLE durable.{table} SET (autovacuum_enabled = off)"),
        )
        .await;
    }
}

async fn reach(statistics: Statistics, connection: &mut PgConnection) {
    without_autovacuum(connection).await;
    prepare(connection).await;
    match statistics {
        Statistics::None => {}
        Statistics::OfEmptyTables => analyse(connection).await,
        Statistics::OfAllTerminal => {
            fill(connection, ROWS, 100_000_000).await;
            finish_everything(connection).await;
            analyse(connection).await;
        }
        Statistics::OfAllCollected => {
            fill(connection, ROWS, 100_000_000).await;
            finish_everything(connection).await;
            run(connection, "DELETE FROM durable.instances").await;
            run(connection, "DELETE FROM durable.finished").await;
            analyse(connection).await;
        }
        Statistics::Fresh => {
            fill(connection, ROWS, 0).await;
            analyse(connection).await;
            return;
        }
    }
    fill(connection, ROWS, 0).await;
}

/// What is wrong with the plans of these statements, each of which is prepared already.
async fn faults(connection: &mut PgConnection, statements: &[HotStatement], situation: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for statement in statements {
        let plan = statement.explain(connection).await;
        let found = statement.faults(&plan).into_iter();
        faults.extend(found.map(|fault| format!("{} ({situation}): {fault}", statement.name)));
    }
    faults
}

async fn prepare_all(connection: &mut PgConnection, statements: &[HotStatement]) {
    for statement in statements {
        statement.prepare(connection).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_hot_statement_probes_its_indexes_whatever_the_statistics_say() {
    // contract: CLAIM-2
    let mut found = Vec::new();
    for statistics in STATISTICS {
        let database = TestDatabase::new().await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        let mut connection = store.pool().acquire().await.expect("a connection");
        reach(statistics, &mut connection).await;
        prepare_all(&mut connection, &INSERTS).await;
        prepare_all(&mut connection, &OTHERS).await;
        for mode in ["force_generic_plan", "force_custom_plan"] {
            run(&mut connection, &format!("SET plan_cache_mode = {mode}")).await;
            let situation = format!("{statistics:?}, {mode}");
            found.extend(faults(&mut connection, &INSERTS, &situation).await);
            found.extend(faults(&mut connection, &OTHERS, &situation).await);
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_was_made_while_the_tables_were_empty_serves_full_ones() {
    // contract: CLAIM-2
    let database = TestDatabase::new().await.expect("a database");
    let store = PgStore::connect(&database.url()).await.expect("connected");
    let mut connection = store.pool().acquire().await.expect("a connection");
    without_autovacuum(&mut connection).await;
    prepare(&mut connection).await;
    let mut filling = store.pool().acquire().await.expect("a connection");
    for statements in [&INSERTS[..], &OTHERS[..]] {
        prepare_all(&mut connection, statements).await;
        faults(&mut connection, statements, "empty").await;
    }
    fill(&mut filling, ROWS, 0).await;
    let mut found = faults(&mut connection, &INSERTS, "planned while empty").await;
    found.extend(faults(&mut connection, &OTHERS, "planned while empty").await);
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_insert_on_a_connection_of_a_caller_probes_its_index_too() {
    // contract: INS-2, INS-3
    let mut found = Vec::new();
    for statistics in STATISTICS {
        let database = TestDatabase::new().await.expect("a database");
        let pool = database.pool(2).await.expect("a pool");
        let mut connection = pool.acquire().await.expect("a connection");
        let mut early = pool.acquire().await.expect("a connection");
        // A caller's connection that has planned the insert for good while there was nothing.
        prepare_all(&mut early, &INSERTS).await;
        run(&mut early, "SET plan_cache_mode = force_generic_plan").await;
        faults(&mut early, &INSERTS, "empty").await;
        reach(statistics, &mut connection).await;
        prepare_all(&mut connection, &INSERTS).await;
        for mode in ["auto", "force_generic_plan", "force_custom_plan"] {
            run(&mut connection, &format!("SET plan_cache_mode = {mode}")).await;
            let situation = format!("{statistics:?}, {mode}, settings of a caller");
            found.extend(faults(&mut connection, &INSERTS, &situation).await);
        }
        let situation = format!("{statistics:?}, planned while empty, settings of a caller");
        found.extend(faults(&mut early, &INSERTS, &situation).await);
    }
    assert_eq!(found, Vec::<String>::new());
}
