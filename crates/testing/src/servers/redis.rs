//! A throw-away Redis server: named by the environment, or started from the program of this machine.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::local::free_port;
use super::{LOOK_AGAIN_AFTER, READY_WITHIN, ServerError};

/// The environment variable that names a Redis server to use instead of starting one.
pub const REDIS_URL_VARIABLE: &str = "DURABLE_TEST_REDIS_URL";

/// How long a server may take to stop; it has nothing to write.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Why there is no Redis server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The program is not there, or cannot be run.
    #[error(
        "no Redis to test with: run `cargo xtask setup`, or install redis-server (Debian: apt-get install \
         redis-server; macOS: brew install redis), or name a server in {REDIS_URL_VARIABLE}"
    )]
    NothingToStart(#[source] io::Error),
    /// No port, or no directory for it.
    #[error("no place for a Redis server")]
    NoPlace(#[source] ServerError),
    /// It ended at once, or did not answer, or did not stop in time.
    #[error("the Redis server at port {0} did not start or stop in time")]
    Late(u16),
    /// It was named by the environment, so it cannot be stopped here.
    #[error("this Redis server was not started here, so it cannot be stopped here")]
    NotOurs,
}

/// A Redis server that keeps nothing on disk. One that was started here ends with the process that started it.
#[derive(Debug)]
pub struct RedisServer {
    url: String,
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    port: u16,
    /// The watchdog, which is the server's parent; none while the server is stopped.
    watchdog: Option<Child>,
    /// Last, so that it is removed after the server has ended.
    directory: TempDir,
}

impl RedisServer {
    /// The named server if there is one, else a new one.
    ///
    /// # Errors
    /// When there is no server and none can be started.
    pub async fn start() -> Result<Self, RedisError> {
        match std::env::var(REDIS_URL_VARIABLE) {
            Ok(url) if !url.is_empty() => Ok(Self { url, own: None }),
            _ => Self::start_own().await,
        }
    }

    /// A new server, whatever the environment names.
    ///
    /// # Errors
    /// When none can be started.
    pub async fn start_own() -> Result<Self, RedisError> {
        let directory = tempfile::Builder::new()
            .prefix("durable-redis-")
            .tempdir()
            .map_err(|source| {
                RedisError::NoPlace(ServerError::File {
                    path: std::env::temp_dir(),
                    source,
                })
            })?;
        let port = free_port().map_err(RedisError::NoPlace)?;
        let mut own = Own {
            port,
            watchdog: None,
            directory,
        };
        own.run().await?;
        Ok(Self {
            url: format!("redis://127.0.0.1:{port}/"),
            own: Some(own),
        })
    }

    /// The address of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the server at once; what it held is gone.
    ///
    /// # Errors
    /// When it is not ours, or does not stop.
    pub async fn stop(&mut self) -> Result<(), RedisError> {
        self.own.as_mut().ok_or(RedisError::NotOurs)?.stop().await
    }

    /// Starts a stopped server again, empty, at the same address.
    ///
    /// # Errors
    /// When it is not ours, or does not start.
    pub async fn start_again(&mut self) -> Result<(), RedisError> {
        self.own.as_mut().ok_or(RedisError::NotOurs)?.run().await
    }
}

impl Own {
    async fn run(&mut self) -> Result<(), RedisError> {
        let version = Command::new("redis-server").arg("--version").output();
        version.map_err(RedisError::NothingToStart)?;
        let watchdog = Command::new("sh")
            .args(["-c", include_str!("watchdog.sh"), "watchdog"])
            .arg(self.directory.path())
            .args(["redis-server", "--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of an interrupt from the terminal: the watchdog decides.
            .process_group(0)
            .spawn();
        self.watchdog = Some(watchdog.map_err(RedisError::NothingToStart)?);
        let deadline = Instant::now() + READY_WITHIN;
        while !self.answers().await {
            if self.has_ended() || Instant::now() >= deadline {
                return Err(RedisError::Late(self.port));
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
        Ok(())
    }

    async fn answers(&self) -> bool {
        let ping = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(b"PING\r\n").await?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).await?;
            io::Result::Ok(&answer == b"+PONG")
        };
        tokio::time::timeout(STOP_WITHIN, ping)
            .await
            .is_ok_and(|answer| answer.unwrap_or(false))
    }

    fn has_ended(&mut self) -> bool {
        match &mut self.watchdog {
            Some(watchdog) => !matches!(watchdog.try_wait(), Ok(None)),
            None => true,
        }
    }

    async fn stop(&mut self) -> Result<(), RedisError> {
        if let Some(mut pipe) = self.watchdog.as_mut().and_then(|watchdog| watchdog.stdin.take()) {
            // A failure means that the server has ended already, which the loop below finds out.
            let _ = pipe.write_all(b"KILL\n");
        }
        let deadline = Instant::now() + STOP_WITHIN;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return Err(RedisError::Late(self.port));
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
        self.watchdog = None;
        Ok(())
    }
}

impl Drop for Own {
    /// Ends the server before its directory is removed.
    fn drop(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            if let Some(mut pipe) = watchdog.stdin.take() {
                let _ = pipe.write_all(b"KILL\n");
            }
            let _ = watchdog.wait();
        }
    }
}
