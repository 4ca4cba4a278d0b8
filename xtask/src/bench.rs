//! Measures the engine against the bare database, in one run on one throw-away server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use comfy_table::Table;
use durable_core::{Context, Engine, Insert, Job, JobError};
use durable_pg::PgStore;
use durable_testing::servers::Durability;
use durable_testing::{PostgresServer, TestDatabase};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, Row as _};

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A tenth of the instances, and one run instead of three.
    #[arg(long)]
    quick: bool,
    /// Also write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// One line of the result.
#[derive(Serialize)]
struct Figure {
    workload: &'static str,
    variant: &'static str,
    metric: &'static str,
    value: f64,
    unit: &'static str,
    floor: Option<f64>,
    ratio: Option<f64>,
    runs: usize,
    spread: f64,
}

/// The statements of one layout of the bare database: what the engine must send, without the engine.
struct Floor {
    name: &'static str,
    schema: &'static str,
    fill: &'static str,
    claim: &'static str,
    complete: &'static str,
    /// Whether `complete` also forgets the claim before.
    closes: bool,
}

macro_rules! floor {
    ($name:literal, $closes:literal) => {
        Floor {
            name: $name,
            schema: include_str!(concat!("floor/", $name, "/schema.sql")),
            fill: include_str!(concat!("floor/", $name, "/fill.sql")),
            claim: include_str!(concat!("floor/", $name, "/claim.sql")),
            complete: include_str!(concat!("floor/", $name, "/complete.sql")),
            closes: $closes,
        }
    };
}

const LAYOUTS: [Floor; 2] = [floor!("one_table", false), floor!("truth_and_place", true)];
const BATCH: i64 = 500;

#[derive(Serialize, Deserialize)]
struct Noop {
    order: u64,
}

impl Job for Noop {
    const NAME: &'static str = "noop";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (instances, runs) = if arguments.quick {
        (10_000, 1)
    } else {
        (100_000, 3)
    };
    let server = PostgresServer::start_own(Durability::Full).await?;
    let mut rates: [Vec<f64>; 3] = Default::default();
    let progress = ProgressBar::new(runs as u64 * 3);
    progress.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?);
    for _ in 0..runs {
        for (layout, rates) in LAYOUTS.iter().zip(&mut rates) {
            progress.set_message(format!("floor, {}", layout.name));
            rates.push(drain_floor(&server, layout, instances).await?);
            progress.inc(1);
        }
        progress.set_message("W1, the engine");
        rates[2].push(drain_engine(&server, instances).await?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let floor = median(&rates[1]);
    let figure = |workload, variant, rates: &[f64], floor: Option<f64>| Figure {
        workload,
        variant,
        metric: "drain",
        value: median(rates),
        unit: "instances/s",
        floor,
        ratio: floor.map(|floor| median(rates) / floor),
        runs,
        spread: spread(rates),
    };
    let figures = [
        figure("floor", LAYOUTS[0].name, &rates[0], None),
        figure("floor", LAYOUTS[1].name, &rates[1], None),
        figure("W1", "defaults", &rates[2], Some(floor)),
    ];
    println!("{instances} no-op instances, one process, full durability, {runs} run(s), medians");
    let mut table = Table::new();
    table.set_header(["workload", "variant", "instances/s", "ratio to floor", "spread"]);
    for figure in &figures {
        table.add_row([
            figure.workload.to_owned(),
            figure.variant.to_owned(),
            format!("{:.0}", figure.value),
            figure
                .ratio
                .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            format!("{:.0}%", figure.spread * 100.0),
        ]);
    }
    println!("{table}");
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&figures)?)
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn sorted(rates: &[f64]) -> Vec<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(rates: &[f64]) -> f64 {
    sorted(rates).get(rates.len() / 2).copied().unwrap_or(0.0)
}

/// The distance from the slowest to the fastest run, as a part of the median.
fn spread(rates: &[f64]) -> f64 {
    let sorted = sorted(rates);
    match (sorted.first(), sorted.last()) {
        (Some(slowest), Some(fastest)) => (fastest - slowest) / median(rates),
        _ => 0.0,
    }
}

fn rate(instances: u32, took: Duration) -> f64 {
    f64::from(instances) / took.as_secs_f64()
}

async fn drain_engine(server: &PostgresServer, instances: u32) -> anyhow::Result<f64> {
    let database = TestDatabase::on(server).await?;
    let store: Arc<dyn durable_core::Store> = PgStore::connect(&database.url()).await?.into();
    let client = durable_core::Client::new(Arc::clone(&store));
    for batch in 0..instances.div_ceil(1000) {
        let orders = (batch * 1000..instances.min(batch * 1000 + 1000)).map(u64::from);
        client
            .insert_all(orders.map(|order| Insert::job(Noop { order })))
            .await?;
    }
    let mut connection = PgConnection::connect(&database.url()).await?;
    let started = Instant::now();
    let engine = Engine::builder(store)
        .queue("default")
        .job::<Noop>()
        .start()
        .await?;
    loop {
        let done: i64 =
            sqlx::query_scalar("SELECT coalesce(sum(instances), 0)::bigint FROM durable.finished")
                .fetch_one(&mut connection)
                .await?;
        if done >= i64::from(instances) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = started.elapsed();
    engine.shutdown().await;
    Ok(rate(instances, took))
}

async fn floor_connection(database: &TestDatabase) -> anyhow::Result<PgConnection> {
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

async fn drain_floor(server: &PostgresServer, floor: &'static Floor, instances: u32) -> anyhow::Result<f64> {
    let database = TestDatabase::empty_on(server).await?;
    let mut connection = floor_connection(&database).await?;
    sqlx::raw_sql(floor.schema).execute(&mut connection).await?;
    sqlx::query("INSERT INTO floor.workers SELECT worker, now() FROM generate_series(1, 2) AS worker")
        .execute(&mut connection)
        .await?;
    sqlx::query(floor.fill)
        .bind(i64::from(instances))
        .execute(&mut connection)
        .await?;
    let started = Instant::now();
    let mut workers = Vec::new();
    for worker in 1..=2 {
        let connection = floor_connection(&database).await?;
        workers.push(tokio::spawn(floor_worker(connection, floor, worker)));
    }
    for worker in workers {
        worker.await??;
    }
    Ok(rate(instances, started.elapsed()))
}

/// Claims and completes until nothing is left; a claim whose rows another took meanwhile is asked again.
async fn floor_worker(mut connection: PgConnection, floor: &Floor, worker: i64) -> anyhow::Result<()> {
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
