//! The effect ledger: one row for each time that a step acted on the world, beside the engine's own tables.

use anyhow::Context as _;
use durable_core::Context;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{PgPool, Postgres, Row as _, Transaction};

use super::order::Step;

/// Connections of one process to the ledger. Each effect holds one until it is flushed to disk; three processes
/// must fit into a server with 100.
const CONNECTIONS: u32 = 10;

/// A process's own connections to the ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    pool: PgPool,
    /// Which process writes.
    worker: String,
}

/// One effect, as a step writes it.
pub(super) struct NewEffect<'step> {
    pub(super) context: &'step Context,
    /// How many outcomes of the instance had been committed when the step started.
    pub(super) position: usize,
    pub(super) step: Step,
    pub(super) failed: bool,
}

/// One effect, as the ledger has it.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    /// Rises in the order in which effects were written.
    pub(super) id: i64,
    /// Microseconds of the database's clock.
    pub(super) written_at: i64,
    pub(super) instance: i64,
    /// How many outcomes of the instance had been committed when the step started.
    pub(super) position: usize,
    pub(super) step: Step,
    pub(super) attempt: i32,
    pub(super) crashes: i32,
    /// Whether the step asked to be tried again.
    pub(super) failed: bool,
    pub(super) worker: String,
}

/// One order, as the engine's store has it.
#[derive(Clone, Debug)]
pub(super) struct StoredOrder {
    pub(super) instance: i64,
    pub(super) status: String,
    pub(super) failure: Option<String>,
    /// The effects of the runs whose outcomes were committed, in order.
    pub(super) committed: Vec<i64>,
    /// How many payments the order has counted.
    pub(super) payments: i64,
    /// With how many picked line items it went on.
    pub(super) lines: i64,
    /// Microseconds of the database's clock.
    pub(super) inserted_at: i64,
    pub(super) finished_at: Option<i64>,
}

/// How far the orders are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) terminal: u64,
    pub(super) effects: u64,
}

impl Ledger {
    /// Connects to the ledger in a schema; `worker` names this process in it.
    pub(super) async fn connect(url: &str, schema: &str, worker: &str) -> anyhow::Result<Self> {
        let options: PgConnectOptions = url.parse().context("reading the address of the database")?;
        // The statements name no schema: the schema of this run comes first in the search path.
        let options = options
            .options([("search_path", schema)])
            .application_name("durable demo");
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
        let pool = pool.connect_with(options).await;
        Ok(Self {
            pool: pool.context("connecting to the database")?,
            worker: worker.to_owned(),
        })
    }

    /// Makes the tables.
    pub(super) async fn create(&self) -> anyhow::Result<()> {
        for table in [
            include_str!("sql/create_effects.sql"),
            include_str!("sql/create_picked_lines.sql"),
        ] {
            let create = sqlx::query(table).execute(&self.pool).await;
            create.context("making the ledger")?;
        }
        Ok(())
    }

    /// Picks a line item in a transaction that is still open.
    pub(super) async fn pick(&self, order: u32, line: u32) -> anyhow::Result<Transaction<'static, Postgres>> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(include_str!("sql/pick_line.sql"))
            .bind(i64::from(order))
            .bind(i64::from(line))
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }

    /// All line items that were picked: the number of the order, and that of the line.
    pub(super) async fn lines(&self) -> anyhow::Result<Vec<(u32, u32)>> {
        let rows: Vec<(i64, i64)> = sqlx::query_as(include_str!("sql/read_picked_lines.sql"))
            .fetch_all(&self.pool)
            .await
            .context("reading the line items")?;
        let number = |(order, line)| Ok((u32::try_from(order)?, u32::try_from(line)?));
        rows.into_iter().map(number).collect()
    }

    /// Writes an effect and answers its number.
    pub(super) async fn write(&self, effect: &NewEffect<'_>) -> anyhow::Result<i64> {
        let context = effect.context;
        let write = sqlx::query_scalar(include_str!("sql/write_effect.sql"))
            .bind(context.id().get())
            .bind(i32::try_from(effect.position)?)
            .bind(i32::try_from(context.attempt())?)
            .bind(i32::try_from(context.crashes())?)
            .bind(effect.failed)
            .bind(effect.step.to_string())
            .bind(&self.worker);
        Ok(write.fetch_one(&self.pool).await?)
    }

    /// All effects, in the order in which they were written.
    pub(super) async fn effects(&self) -> anyhow::Result<Vec<Effect>> {
        let rows = sqlx::query(include_str!("sql/read_effects.sql"));
        let rows = rows.fetch_all(&self.pool).await.context("reading the ledger")?;
        rows.iter().map(effect).collect()
    }

    /// All orders, as the engine's store has them.
    pub(super) async fn orders(&self) -> anyhow::Result<Vec<StoredOrder>> {
        let rows = sqlx::query(include_str!("sql/read_orders.sql"));
        let rows = rows.fetch_all(&self.pool).await.context("reading the orders")?;
        rows.iter().map(order).collect()
    }

    /// How far the orders are.
    pub(super) async fn count(&self) -> anyhow::Result<Count> {
        let row = sqlx::query(include_str!("sql/count.sql"));
        let row = row.fetch_one(&self.pool).await.context("counting the orders")?;
        Ok(Count {
            terminal: u64::try_from(row.try_get::<i64, _>("terminal")?)?,
            effects: u64::try_from(row.try_get::<i64, _>("effects")?)?,
        })
    }

    /// The worker that holds the most orders now, and how many; `None` when nobody holds any.
    pub(super) async fn busiest(&self) -> anyhow::Result<Option<(String, i64)>> {
        let busiest = sqlx::query_as(include_str!("sql/busiest.sql"));
        let busiest = busiest.fetch_optional(&self.pool).await;
        busiest.context("asking which worker is busy")
    }

    /// The database's time, in microseconds.
    pub(super) async fn now(&self) -> anyhow::Result<i64> {
        let now = sqlx::query_scalar(include_str!("sql/now.sql"));
        now.fetch_one(&self.pool).await.context("asking for the time")
    }

    /// Closes the connections.
    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

fn effect(row: &PgRow) -> anyhow::Result<Effect> {
    Ok(Effect {
        id: row.try_get("id")?,
        written_at: row.try_get("written_at")?,
        instance: row.try_get("instance_id")?,
        position: usize::try_from(row.try_get::<i32, _>("position")?)?,
        step: row.try_get::<String, _>("step")?.parse()?,
        attempt: row.try_get("attempt")?,
        crashes: row.try_get("crashes")?,
        failed: row.try_get("failed")?,
        worker: row.try_get("worker")?,
    })
}

fn order(row: &PgRow) -> anyhow::Result<StoredOrder> {
    Ok(StoredOrder {
        instance: row.try_get("id")?,
        status: row.try_get("status")?,
        failure: row.try_get("failure")?,
        committed: serde_json::from_str(row.try_get("committed")?)
            .context("the list of committed effects in an order")?,
        payments: row.try_get("payments")?,
        lines: row.try_get("lines")?,
        inserted_at: row.try_get("inserted_at")?,
        finished_at: row.try_get("finished_at")?,
    })
}
