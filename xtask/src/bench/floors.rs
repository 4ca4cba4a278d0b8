//! The floor programs: what the engine must send to the database, without the engine.

use std::time::{Duration, Instant};

use durable_testing::{PostgresServer, TestDatabase};
use sqlx::{Connection as _, PgConnection, Row as _};

/// The statements of one layout of the bare database.
pub(super) struct Floor {
    schema: &'static str,
    fill: &'static str,
    claim: &'static str,
    complete: &'static str,
    /// Whether `complete` also forgets the claim before.
    closes: bool,
}

macro_rules! floor {
    ($name:literal, $complete:literal, $closes:literal) => {
        Floor {
            schema: include_str!(concat!("floor/", $name, "/schema.sql")),
            fill: include_str!(concat!("floor/", $name, "/fill.sql")),
            claim: include_str!(concat!("floor/", $name, "/claim.sql")),
            complete: include_str!(concat!("floor/", $name, "/", $complete, ".sql")),
            closes: $closes,
        }
    };
}

/// The layout that was not chosen, for the decision of docs/decisions/0001.
pub(super) static ONE_TABLE: Floor = floor!("one_table", "complete", false);
/// The layout of the store: claim and complete.
pub(super) static TRUTH_AND_PLACE: Floor = floor!("truth_and_place", "complete", true);
/// The layout of the store: five steps through the queue.
pub(super) static CHAIN: Floor = floor!("truth_and_place", "advance", true);
const INSERT: &str = include_str!("floor/truth_and_place/insert.sql");

const BATCH: i64 = 500;
const CONNECTIONS: i64 = 2;

/// Fills, then claims and completes until nothing is left; how long the latter took.
pub(super) async fn drain(
    server: &PostgresServer,
    floor: &'static Floor,
    instances: u32,
) -> anyhow::Result<Duration> {
    let database = TestDatabase::empty_on(server).await?;
    let mut connection = prepare(&database, floor).await?;
    sqlx::query(floor.fill)
        .bind(i64::from(instances))
        .execute(&mut connection)
        .await?;
    let started = Instant::now();
    let mut workers = Vec::new();
    for worker in 1..=CONNECTIONS {
        let connection = connect(&database).await?;
        workers.push(tokio::spawn(work(connection, floor, worker)));
    }
    for worker in workers {
        worker.await??;
    }
    Ok(started.elapsed())
}

/// Inserts `calls` batches of `batch` rows over a number of connections; how long that took.
pub(super) async fn insert(
    server: &PostgresServer,
    connections: usize,
    calls: usize,
    batch: usize,
) -> anyhow::Result<Duration> {
    let database = TestDatabase::empty_on(server).await?;
    drop(prepare(&database, &TRUTH_AND_PLACE).await?);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(connect(&database).await?);
    }
    let started = Instant::now();
    let mut callers = Vec::new();
    for mut connection in open {
        callers.push(tokio::spawn(async move {
            for _ in 0..calls / connections {
                sqlx::query(INSERT)
                    .bind(vec![1_i32; batch])
                    .bind(vec!["perform"; batch])
                    .bind(vec![r#"{"order":1}"#; batch])
                    .bind(vec![100_i16; batch])
                    .fetch_all(&mut connection)
                    .await?;
            }
            Ok::<_, sqlx::Error>(())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    Ok(started.elapsed())
}

async fn prepare(database: &TestDatabase, floor: &Floor) -> anyhow::Result<PgConnection> {
    let mut connection = connect(database).await?;
    sqlx::raw_sql(floor.schema).execute(&mut connection).await?;
    sqlx::query("INSERT INTO floor.workers SELECT worker, now() FROM generate_series(1, $1) AS worker")
        .bind(CONNECTIONS)
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

async fn connect(database: &TestDatabase) -> anyhow::Result<PgConnection> {
    let off = [
        "enable_seqscan",
        "enable_bitmapscan",
        "enable_hashjoin",
        "enable_mergejoin",
        "jit",
    ];
    let options = database.connect_options().options(off.map(|name| (name, "off")));
    let options = options.options([("plan_cache_mode", "force_generic_plan")]);
    Ok(PgConnection::connect_with(&options).await?)
}

/// Claims and completes until nothing is left; a claim whose rows another took meanwhile is asked again.
async fn work(mut connection: PgConnection, floor: &Floor, worker: i64) -> anyhow::Result<()> {
    let mut number = 0_i64;
    let mut empty = 0;
    while empty < 3 {
        number += 1;
        let rows = sqlx::query(floor.claim)
            .bind(worker)
            .bind(number)
            .bind(BATCH)
            .fetch_all(&mut connection)
            .await?;
        if rows.is_empty() {
            empty += 1;
            continue;
        }
        empty = 0;
        let ids = rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<Vec<i64>, _>>()?;
        let seqs = rows
            .iter()
            .map(|row| row.try_get(1))
            .collect::<Result<Vec<i32>, _>>()?;
        let complete = sqlx::query(floor.complete)
            .bind(worker)
            .bind(number)
            .bind(ids)
            .bind(seqs);
        let complete = if floor.closes {
            complete.bind(vec![number - 1])
        } else {
            complete
        };
        complete.fetch_all(&mut connection).await?;
    }
    Ok(())
}
