//! A database of its own for every test, cloned from a template that is migrated once per server.

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool};
use std::str::FromStr;
use std::time::Duration;

use crate::servers::{PostgresServer, ServerError};

mod migrations;

/// The advisory lock, taken in the maintenance database, under which the template is made. Any number
/// does that nothing else uses; this one spells "template".
const TEMPLATE_LOCK: i64 = 0x7465_6d70_6c61_7465;

/// How long dropping a database may take before it is left to the end of the server.
const DROP_WITHIN: Duration = Duration::from_secs(10);

/// A database that one test has for itself, dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server_url: String,
    name: String,
    options: PgConnectOptions,
}

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// There is no server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server refused something.
    #[error("cannot {action}")]
    Refused {
        /// What was tried.
        action: String,
        /// The reason.
        #[source]
        source: sqlx::Error,
    },
    /// The migrations failed.
    #[error("cannot migrate the template database")]
    Migrate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl TestDatabase {
    /// A migrated database on the server that the tests of this process share.
    ///
    /// # Errors
    /// When there is no server, or it refuses.
    pub async fn new() -> Result<Self, DatabaseError> {
        Self::on(PostgresServer::shared().await?).await
    }

    /// A database without any migration, on the shared server.
    ///
    /// # Errors
    /// When there is no server, or it refuses.
    pub async fn empty() -> Result<Self, DatabaseError> {
        Self::empty_on(PostgresServer::shared().await?).await
    }

    /// A migrated database on a given server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn on(server: &PostgresServer) -> Result<Self, DatabaseError> {
        let mut maintenance = connect(server.url()).await?;
        let template = ensure_template(&mut maintenance, server.url()).await?;
        Self::create(maintenance, server.url(), &template).await
    }

    /// A database without any migration, on a given server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn empty_on(server: &PostgresServer) -> Result<Self, DatabaseError> {
        let maintenance = connect(server.url()).await?;
        Self::create(maintenance, server.url(), "template0").await
    }

    async fn create(
        mut maintenance: PgConnection,
        server_url: &str,
        template: &str,
    ) -> Result<Self, DatabaseError> {
        let name = format!("durable_test_{:016x}", rand::random::<u64>());
        let options = options(server_url)?.database(&name);
        // Made before the statement, so that a caller that gives up half-way leaves nothing behind.
        let database = Self {
            server_url: server_url.to_owned(),
            name,
            options,
        };
        let statement = format!("CREATE DATABASE {} TEMPLATE {template}", database.name);
        execute(&mut maintenance, &statement).await?;
        close(maintenance).await?;
        Ok(database)
    }

    /// The name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the database.
    #[must_use]
    pub fn url(&self) -> String {
        with_database(&self.server_url, &self.name)
    }

    /// How to connect to the database, for callers that set more than the address.
    #[must_use]
    pub fn connect_options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// A new pool of connections to the database; the first connection is open.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn pool(&self, max_connections: u32) -> Result<PgPool, DatabaseError> {
        PgPoolOptions::new()
            .max_connections(max_connections)
            .connect_with(self.connect_options())
            .await
            .map_err(refused(&format!("connect to {}", self.name)))
    }
}

impl Drop for TestDatabase {
    /// Best effort: what cannot be dropped now ends with the server.
    fn drop(&mut self) {
        let server_url = std::mem::take(&mut self.server_url);
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A thread of its own, because the runtime of the test may be this very thread.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .ok()?;
            runtime.block_on(async {
                let dropped = async {
                    let mut maintenance = connect(&server_url).await?;
                    execute(&mut maintenance, &statement).await?;
                    close(maintenance).await
                };
                match tokio::time::timeout(DROP_WITHIN, dropped).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a test database was not dropped"),
                    Err(_) => tracing::debug!("a test database was not dropped in time"),
                }
            });
            Some(())
        });
        let _ = dropping.join();
    }
}

/// The name of the migrated template, which is made first if it is not there.
async fn ensure_template(maintenance: &mut PgConnection, server_url: &str) -> Result<String, DatabaseError> {
    let template = format!("durable_template_{}", migrations::fingerprint());
    if exists(maintenance, &template).await? {
        return Ok(template);
    }
    // Another process may make it at the same time: one does, the others wait and then find it. The
    // lock goes with the connection if anything fails from here on.
    lock(maintenance, "pg_advisory_lock").await?;
    if !exists(maintenance, &template).await? {
        // Made under another name, so that a half-made template is never found.
        let draft = format!("{template}_draft");
        execute(
            maintenance,
            &format!("DROP DATABASE IF EXISTS {draft} WITH (FORCE)"),
        )
        .await?;
        execute(
            maintenance,
            &format!("CREATE DATABASE {draft} TEMPLATE template0"),
        )
        .await?;
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect_with(options(server_url)?.database(&draft))
            .await
            .map_err(refused(&format!("connect to {draft}")))?;
        let migrated = migrations::run(&pool).await;
        pool.close().await;
        migrated.map_err(DatabaseError::Migrate)?;
        // A template that someone is connected to cannot be cloned.
        execute(
            maintenance,
            &format!("ALTER DATABASE {draft} ALLOW_CONNECTIONS false"),
        )
        .await?;
        execute(
            maintenance,
            &format!("ALTER DATABASE {draft} RENAME TO {template}"),
        )
        .await?;
    }
    lock(maintenance, "pg_advisory_unlock").await?;
    Ok(template)
}

async fn lock(maintenance: &mut PgConnection, function: &str) -> Result<(), DatabaseError> {
    execute(maintenance, &format!("SELECT {function}({TEMPLATE_LOCK})")).await
}

async fn exists(maintenance: &mut PgConnection, name: &str) -> Result<bool, DatabaseError> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(name)
        .fetch_one(maintenance)
        .await
        .map_err(refused(&format!("look for {name}")))
}

async fn connect(url: &str) -> Result<PgConnection, DatabaseError> {
    PgConnection::connect(url)
        .await
        .map_err(refused("connect to the server"))
}

async fn close(connection: PgConnection) -> Result<(), DatabaseError> {
    connection.close().await.map_err(refused("close a connection"))
}

/// Runs a statement whose only variable part is a name that was made here.
async fn execute(connection: &mut PgConnection, statement: &str) -> Result<(), DatabaseError> {
    let outcome = connection.execute(AssertSqlSafe(statement)).await;
    outcome.map(drop).map_err(refused(statement))
}

fn options(url: &str) -> Result<PgConnectOptions, DatabaseError> {
    PgConnectOptions::from_str(url).map_err(refused("read the address of the server"))
}

fn refused(action: &str) -> impl FnOnce(sqlx::Error) -> DatabaseError {
    let action = action.to_owned();
    |source| DatabaseError::Refused { action, source }
}

/// The address with another database in it; its options stay.
fn with_database(url: &str, name: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (url, String::new()),
    };
    let authority = address.find("://").map_or(0, |scheme| scheme + "://".len());
    let end = address[authority..]
        .find('/')
        .map_or(address.len(), |slash| authority + slash);
    format!("{}/{name}{query}", &address[..end])
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn the_database_of_an_address_is_replaced() {
        for (url, expected) in [
            ("postgres://u@h:1/postgres", "postgres://u@h:1/x"),
            (
                "postgres://u:p@h/postgres?sslmode=disable",
                "postgres://u:p@h/x?sslmode=disable",
            ),
            ("postgres://h", "postgres://h/x"),
            ("postgres://h/?host=/tmp", "postgres://h/x?host=/tmp"),
        ] {
            assert_eq!(with_database(url, "x"), expected);
        }
    }
}
