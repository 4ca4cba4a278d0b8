//! Throw-away Postgres servers for tests, demonstrations and benchmarks.
//!
//! A server comes from the first of these that is there:
//!
//! 1. the server that the environment variable [`POSTGRES_URL_VARIABLE`] names,
//! 2. the Postgres programs of this machine, started in a temporary directory,
//! 3. a container, with the feature `containers`.
//!
//! A server that was started here ends with the process that started it, even when that process is
//! killed: see `servers/watchdog.sh`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::sync::OnceCell;

mod binaries;
#[cfg(feature = "containers")]
mod container;
mod local;
mod redis;

pub use binaries::find_postgres;
pub use redis::{REDIS_URL_VARIABLE, RedisError, RedisServer};

use local::LocalServer;

/// The environment variable that names a server to use instead of starting one.
pub const POSTGRES_URL_VARIABLE: &str = "DURABLE_TEST_POSTGRES_URL";

/// How long a server may take until it answers: a cold container on a busy machine needs several seconds.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long between two looks at a server that is starting or stopping.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What a server that is started here promises about a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is flushed to disk: fast, and safe against every crash of the server's own processes. For tests.
    Off,
    /// Everything is flushed, with memory and log sized for a load. For demonstrations and benchmarks.
    Full,
}

/// How a server is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Transactions are rolled back, sessions are ended, and the server leaves in good order.
    Fast,
    /// The server stops as if it had crashed, and recovers from its log when it starts again.
    Immediate,
}

/// A Postgres server that is used for a while and then thrown away.
#[derive(Debug)]
pub struct PostgresServer {
    url: String,
    origin: Origin,
}

/// Where a server comes from, and so who may stop it.
#[derive(Debug)]
enum Origin {
    /// Named by the environment: not ours to stop.
    Named,
    /// Started here from the programs of this machine.
    Local(LocalServer),
    /// Started here in a container, which ends when this is dropped.
    #[cfg(feature = "containers")]
    Container(#[allow(dead_code, reason = "held for its drop")] Box<container::ContainerServer>),
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Neither a named server, nor the programs, nor a container.
    #[error(
        "no Postgres to test with: run `cargo xtask setup`, or install the Postgres server programs \
         (Debian: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install \
         postgresql@17), or start Docker, or name a server in {POSTGRES_URL_VARIABLE}{}", because(.container)
    )]
    NothingToStart {
        /// What went wrong with the container, if one was tried.
        container: Option<String>,
    },
    /// A program could not be run at all.
    #[error("cannot run {program}")]
    Program {
        /// The program.
        program: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// `initdb` or another program that prepares the server failed.
    #[error("{program} failed: {output}")]
    Prepare {
        /// The program.
        program: String,
        /// What it said.
        output: String,
    },
    /// A file or directory of the server could not be made or read.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Postgres refuses to run as root, and there is no other user to run it as.
    #[error("Postgres refuses to run as root, and this machine has neither a user `postgres` nor `nobody`")]
    NoUnprivilegedUser,
    /// No port was free in the range that is tried.
    #[error("no free port between {} and {}", local::PORTS.start, local::PORTS.end)]
    NoFreePort,
    /// The server ended while it was starting.
    #[error("the Postgres server ended while it was starting; its log ends:\n{log}")]
    Ended {
        /// The end of the server's log.
        log: String,
    },
    /// The server does not answer.
    #[error("no answer from Postgres at {url} within {READY_WITHIN:?}; its log ends:\n{log}")]
    NotReady {
        /// The server's address.
        url: String,
        /// The end of the server's log; empty when the server is not ours.
        log: String,
        /// The answer to the last attempt to connect.
        #[source]
        source: sqlx::Error,
    },
    /// The server did not stop when it was asked to.
    #[error("the Postgres server did not stop; its log ends:\n{log}")]
    NotStopped {
        /// The end of the server's log.
        log: String,
    },
    /// Only a server that was started here from local programs can be stopped and started.
    #[error("this Postgres server was not started here from local programs, so it cannot be stopped here")]
    NotOurs,
}

fn because(reason: &Option<String>) -> String {
    reason
        .as_ref()
        .map(|reason| format!(" (the container failed: {reason})"))
        .unwrap_or_default()
}

impl PostgresServer {
    /// The named server if there is one, else a new server with [`Durability::Off`].
    ///
    /// # Errors
    /// When there is no server and none can be started.
    pub async fn start() -> Result<Self, ServerError> {
        match std::env::var(POSTGRES_URL_VARIABLE) {
            Ok(url) if !url.is_empty() => {
                wait_until_ready(&url, None).await?;
                Ok(Self {
                    url,
                    origin: Origin::Named,
                })
            }
            _ => Self::start_own(Durability::Off).await,
        }
    }

    /// A new server, whatever the environment names: from local programs if they are there, else in a container.
    ///
    /// # Errors
    /// When none can be started.
    pub async fn start_own(durability: Durability) -> Result<Self, ServerError> {
        if let Some(programs) = find_postgres() {
            let server = LocalServer::start(&programs, durability).await?;
            return Ok(Self {
                url: server.url(),
                origin: Origin::Local(server),
            });
        }
        Self::start_container(durability).await
    }

    #[cfg(feature = "containers")]
    async fn start_container(durability: Durability) -> Result<Self, ServerError> {
        let (server, url) = container::ContainerServer::start(durability)
            .await
            .map_err(|error| ServerError::NothingToStart {
                container: Some(error.to_string()),
            })?;
        wait_until_ready(&url, None).await?;
        Ok(Self {
            url,
            origin: Origin::Container(Box::new(server)),
        })
    }

    #[cfg(not(feature = "containers"))]
    #[allow(
        clippy::unused_async,
        reason = "the same signature with and without containers"
    )]
    async fn start_container(_: Durability) -> Result<Self, ServerError> {
        Err(ServerError::NothingToStart { container: None })
    }

    /// The one server that the tests of this process share; started on first use as by [`start`](Self::start).
    ///
    /// # Errors
    /// When there is no server and none can be started; the next caller tries again.
    pub async fn shared() -> Result<&'static Self, ServerError> {
        // Never dropped: a static outlives `main`. The watchdog ends the server when this process is gone.
        static SHARED: OnceCell<PostgresServer> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// The address of the server's maintenance database, for a role that may create databases.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id of the server, when it was started here from local programs and is running.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        match &self.origin {
            Origin::Local(server) => server.process_id(),
            _ => None,
        }
    }

    /// Stops the server; its data stays.
    ///
    /// # Errors
    /// When the server is not ours or does not stop.
    pub async fn stop(&mut self, shutdown: Shutdown) -> Result<(), ServerError> {
        self.local()?.stop(shutdown).await
    }

    /// Starts a stopped server again, at the same address and with the same data.
    ///
    /// # Errors
    /// When the server is not ours or does not start.
    pub async fn start_again(&mut self) -> Result<(), ServerError> {
        self.local()?.run().await
    }

    /// Stops the server and starts it again.
    ///
    /// # Errors
    /// When the server is not ours, does not stop or does not start.
    pub async fn restart(&mut self, shutdown: Shutdown) -> Result<(), ServerError> {
        self.stop(shutdown).await?;
        self.start_again().await
    }

    fn local(&mut self) -> Result<&mut LocalServer, ServerError> {
        match &mut self.origin {
            Origin::Local(server) => Ok(server),
            _ => Err(ServerError::NotOurs),
        }
    }
}

/// Connects until it works, the time is over, or our own server has ended.
async fn wait_until_ready(url: &str, mut server: Option<&mut LocalServer>) -> Result<(), ServerError> {
    let deadline = tokio::time::Instant::now() + READY_WITHIN;
    loop {
        let answer = match tokio::time::timeout_at(deadline, PgConnection::connect(url)).await {
            Ok(Ok(connection)) => connection.close().await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(sqlx::Error::PoolTimedOut),
        };
        // Looked at after the answer: an answer counts only if it came from our server, not from a
        // stranger who took the port first.
        if let Some(server) = &mut server
            && server.has_ended()
        {
            return Err(ServerError::Ended {
                log: server.log_tail(),
            });
        }
        match answer {
            Ok(()) => return Ok(()),
            Err(source) if tokio::time::Instant::now() >= deadline => {
                let log = server.map(|server| server.log_tail()).unwrap_or_default();
                return Err(ServerError::NotReady {
                    url: url.to_owned(),
                    log,
                    source,
                });
            }
            Err(_) => tokio::time::sleep(LOOK_AGAIN_AFTER).await,
        }
    }
}
