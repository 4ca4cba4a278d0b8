//! Opens the store.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use durable_core::StoreError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgPool, Postgres};

use crate::error::{NotConnected, store_error};
use crate::insert_group::InsertGroup;
use crate::lanes::Lanes;
use crate::low_water::LowWater;
use crate::migrate::{self, MigrateError};
use crate::statements::Statements;

/// The store on Postgres. A clone is another handle of the same pool.
#[derive(Clone)]
pub struct PgStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) pool: PgPool,
    pub(crate) options: PgConnectOptions,
    pub(crate) statements: Statements,
    pub(crate) lanes: Lanes,
    pub(crate) inserts: InsertGroup,
    pub(crate) low_water: LowWater,
    /// How far the forgetting of idle keys has come.
    pub(crate) forget_mark: Mutex<Option<(String, String)>>,
    pub(crate) identity: String,
}

impl Shared {
    /// A connection of the pool, for one statement or one transaction. That none can be had is told apart from
    /// a statement that failed: nothing was sent, so nobody has to ask what became of it.
    pub(crate) async fn connection(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.pool.acquire().await.map_err(NotConnected::error)
    }
}

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL, or the server.
    #[error("cannot connect to Postgres: {0}")]
    Database(#[from] sqlx::Error),
    /// The schema.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
}

/// Options of a [`PgStore`].
#[must_use = "nothing is opened before connect()"]
pub struct PgStoreBuilder {
    options: PgConnectOptions,
    schema: String,
    max_connections: u32,
    migrate: bool,
}

/// No step holds a connection, so a few serve any concurrency.
const DEFAULT_CONNECTIONS: u32 = 5;

/// A connection that was idle for this long may have been closed by something in between, and is tried before
/// it is used. One in steady use is not: the ping would be one more round trip for every statement.
const IDLE_BEFORE_PING: Duration = Duration::from_secs(1);

/// Every hot statement has one right plan: index probes in a nested loop. With these settings the planner
/// cannot be led astray by statistics that are missing, stale, or from an empty table.
pub(crate) const PLANNER: [(&str, &str); 6] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

impl PgStoreBuilder {
    /// The schema; default `durable`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// The most connections of the pool; default 5. Each engine opens one more, for its heartbeat.
    pub const fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Whether to migrate the schema first; default yes. Say no where deployments run the migrations.
    pub const fn migrate(mut self, on: bool) -> Self {
        self.migrate = on;
        self
    }

    /// Connects, migrates, and checks the schema.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(self) -> Result<PgStore, ConnectError> {
        migrate::check_name(&self.schema)?;
        let options = self.options.application_name("durable").options(PLANNER);
        let pool = PgPoolOptions::new()
            .max_connections(self.max_connections.max(1))
            .test_before_acquire(false)
            .before_acquire(|connection, metadata| {
                Box::pin(async move {
                    if metadata.idle_for >= IDLE_BEFORE_PING {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_with(options.clone())
            .await?;
        let statements = Statements::new(&self.schema);
        let mut connection = pool.acquire().await?;
        if self.migrate {
            migrate::run(&mut connection, &self.schema).await?;
        }
        let installed = migrate::check(&mut connection, &self.schema, &statements).await?;
        drop(connection);
        let identity = format!("postgres:{}", installed.identity);
        let shared = Shared {
            pool,
            options,
            statements,
            lanes: Lanes::default(),
            inserts: InsertGroup::default(),
            low_water: LowWater::default(),
            forget_mark: Mutex::default(),
            identity,
        };
        Ok(PgStore {
            shared: Arc::new(shared),
        })
    }
}

impl PgStore {
    /// Connects with the defaults, and migrates the schema `durable`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url)?.connect().await
    }

    /// Options for a store.
    ///
    /// # Errors
    /// [`ConnectError::Database`] when the URL cannot be read.
    pub fn builder(url: &str) -> Result<PgStoreBuilder, ConnectError> {
        Ok(PgStoreBuilder {
            options: url.parse()?,
            schema: "durable".to_owned(),
            max_connections: DEFAULT_CONNECTIONS,
            migrate: true,
        })
    }

    /// The pool of the store's own connections.
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// Runs database work in a task of its own: a caller that is dropped midway neither poisons a connection
    /// nor stops the work.
    pub(crate) async fn run<T, F, W>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Shared>) -> W,
        W: Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    {
        match tokio::spawn(work(Arc::clone(&self.shared))).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(store_error(&error)),
            Err(error) => Err(StoreError::Fatal {
                message: error.to_string(),
            }),
        }
    }
}

impl From<PgStore> for Arc<dyn durable_core::Store> {
    fn from(store: PgStore) -> Self {
        Arc::<PgStore>::new(store)
    }
}
