//! The database of the demonstration: a schema of its own with the store, and the ledger beside it.

use std::sync::Arc;

use durable_core::{InstanceId, Store};
use durable_pg::PgStore;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _};

use super::first;
use super::ledger::{Effect, Run, RunKey, StoredOrder};
use super::order::OrderStep;

/// A schema that lives as long as the demonstration.
pub(super) struct Stage {
    pub(super) url: String,
    pub(super) schema: String,
    store: PgStore,
    connection: PgConnection,
}

impl Stage {
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let schema = format!("durable_demo_{:08x}", rand::random::<u32>());
        let store = PgStore::builder(url)?.schema(&schema).connect().await?;
        let mut connection = PgConnection::connect(url).await?;
        let create = format!(
            "CREATE TABLE {schema}.effects (
                instance_id bigint NOT NULL,
                step text NOT NULL,
                attempt bigint NOT NULL,
                crashes bigint NOT NULL,
                process bigint NOT NULL,
                at timestamptz NOT NULL DEFAULT clock_timestamp()
            )"
        );
        sqlx::query(AssertSqlSafe(create))
            .execute(&mut connection)
            .await?;
        Ok(Self {
            url: url.to_owned(),
            schema,
            store,
            connection,
        })
    }

    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        sqlx::query(AssertSqlSafe(drop))
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.clone().into()
    }

    /// The time of the server, in microseconds.
    pub(super) async fn now(&mut self) -> anyhow::Result<i64> {
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        Ok(sqlx::query_scalar(now).fetch_one(&mut self.connection).await?)
    }

    /// How many orders are terminal, and how many effects there are.
    pub(super) async fn progress(&mut self) -> anyhow::Result<(u64, u64)> {
        let schema = &self.schema;
        let count = format!(
            "SELECT (SELECT coalesce(sum(instances), 0) FROM {schema}.finished)::bigint,
                (SELECT count(*) FROM {schema}.effects)"
        );
        let rows: Vec<(i64, i64)> = sqlx::query_as(AssertSqlSafe(count))
            .fetch_all(&mut self.connection)
            .await?;
        let (terminal, effects) = first(rows)?;
        Ok((u64::try_from(terminal)?, u64::try_from(effects)?))
    }

    pub(super) async fn orders(&mut self) -> anyhow::Result<Vec<StoredOrder>> {
        let read = format!(
            "SELECT id, status::text AS status, coalesce(result, '[]')::text AS committed,
                (extract(epoch FROM inserted_at) * 1000000)::bigint AS inserted_at,
                coalesce((extract(epoch FROM finished_at) * 1000000)::bigint, 0) AS finished_at
            FROM {}.instances",
            self.schema
        );
        let rows = sqlx::query(AssertSqlSafe(read))
            .fetch_all(&mut self.connection)
            .await?;
        let order = |row: &sqlx::postgres::PgRow| {
            Ok(StoredOrder {
                instance: row.try_get("id")?,
                status: row.try_get("status")?,
                committed: serde_json::from_str(row.try_get("committed")?)?,
                inserted_at: row.try_get("inserted_at")?,
                finished_at: row.try_get("finished_at")?,
            })
        };
        rows.iter().map(order).collect()
    }

    pub(super) async fn effects(&mut self) -> anyhow::Result<Vec<Effect>> {
        let read = format!(
            "SELECT instance_id, step, attempt, crashes, process, (extract(epoch FROM at) * 1000000)::bigint AS at
            FROM {}.effects",
            self.schema
        );
        let rows = sqlx::query(AssertSqlSafe(read))
            .fetch_all(&mut self.connection)
            .await?;
        let effect = |row: &sqlx::postgres::PgRow| {
            let step: OrderStep = serde_json::from_str(row.try_get("step")?)?;
            let key = RunKey {
                step,
                attempt: u32::try_from(row.try_get::<i64, _>("attempt")?)?,
                crashes: u32::try_from(row.try_get::<i64, _>("crashes")?)?,
            };
            Ok(Effect {
                instance: row.try_get("instance_id")?,
                run: Run {
                    key,
                    process: u32::try_from(row.try_get::<i64, _>("process")?)?,
                },
                at: row.try_get("at")?,
            })
        };
        rows.iter().map(effect).collect()
    }
}

/// The outside world, as a worker reaches it: connections of its own, each effect a transaction of its own.
pub(super) struct Ledger {
    pool: PgPool,
    insert: String,
}

impl Ledger {
    pub(super) async fn open(url: &str, schema: &str) -> anyhow::Result<Self> {
        Ok(Self {
            pool: PgPool::connect(url).await?,
            insert: format!(
                "INSERT INTO {schema}.effects (instance_id, step, attempt, crashes, process) VALUES ($1, $2, $3, $4, $5)"
            ),
        })
    }

    pub(super) async fn write(&self, instance: InstanceId, run: &Run) -> Result<(), durable_core::Error> {
        sqlx::query(AssertSqlSafe(self.insert.clone()))
            .bind(instance.get())
            .bind(serde_json::to_string(&run.key.step)?)
            .bind(i64::from(run.key.attempt))
            .bind(i64::from(run.key.crashes))
            .bind(i64::from(run.process))
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
