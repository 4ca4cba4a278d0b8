//! Where a demonstration takes place: a schema of its own, on a throw-away server or on a given one.

use std::time::Duration;

use anyhow::Context as _;
use durable_testing::PostgresServer;
use durable_testing::servers::Durability;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// How long removing the schema may take. The workers are gone by then, and nobody else knows of it.
const REMOVE_WITHIN: Duration = Duration::from_secs(10);

/// A place that nobody else uses.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) url: String,
    /// The engine's tables and the ledger are in it. A schema, because a role that may not create databases
    /// can have one too.
    pub(super) schema: String,
    /// None when the server was given.
    server: Option<PostgresServer>,
}

impl Place {
    /// On the server of this address, or on a new one, flushed to disk as in production. The schema is made
    /// by the first store that connects.
    pub(super) async fn find(given_url: Option<&str>) -> anyhow::Result<Self> {
        let schema = format!("durable_demo_{:016x}", rand::random::<u64>());
        if let Some(url) = given_url {
            // A pool would try for half a minute, and then not say why it failed.
            let connection = PgConnection::connect(url).await;
            let connection = connection.context("cannot connect to the database of --database-url")?;
            connection.close().await?;
            return Ok(Self {
                url: url.to_owned(),
                schema,
                server: None,
            });
        }
        let server = PostgresServer::start_own(Durability::Full)
            .await
            .context("starting a throw-away server; --database-url URL uses one of yours")?;
        Ok(Self {
            url: server.url().to_owned(),
            schema,
            server: Some(server),
        })
    }

    /// What it is, for people; without the address, which may hold a password.
    pub(super) fn describe(&self) -> String {
        match self.server {
            Some(_) => "a throw-away Postgres server, everything flushed to disk".to_owned(),
            None => format!("the given database, in schema {} of its own", self.schema),
        }
    }

    /// Leaves nothing behind.
    pub(super) async fn clear(self) -> anyhow::Result<()> {
        if self.server.is_some() {
            // The server ends with this value, and its data with it.
            return Ok(());
        }
        let remove = async {
            let mut connection = PgConnection::connect(&self.url).await?;
            let remove = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema);
            sqlx::query(AssertSqlSafe(remove))
                .execute(&mut connection)
                .await?;
            connection.close().await?;
            anyhow::Ok(())
        };
        let removed = tokio::time::timeout(REMOVE_WITHIN, remove).await;
        removed
            .map_err(anyhow::Error::from)
            .flatten()
            .with_context(|| format!("schema {} is left behind in the given database", self.schema))
    }
}
