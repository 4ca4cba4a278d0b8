//! A Postgres server as a child of this process, in a temporary directory.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Durability, LOOK_AGAIN_AFTER, ServerError, Shutdown, wait_until_ready};

/// The ports to choose from. They lie below those that the system gives to outgoing connections, so
/// that no client can be given the server's port while the server is restarting.
pub(super) const PORTS: Range<u16> = 15_000..32_000;

/// How many ports are tried before giving up: on any machine far fewer than half are taken.
const PORT_ATTEMPTS: usize = 50;

/// How often a start is repeated because another process took the chosen port first.
const START_ATTEMPTS: usize = 3;

/// How long a server may take to stop: a fast shutdown writes a checkpoint first.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How much of the server's log an error shows.
const LOG_TAIL_LINES: usize = 20;

/// A server that runs from the programs of this machine.
#[derive(Debug)]
pub(super) struct LocalServer {
    programs: PathBuf,
    durability: Durability,
    port: u16,
    /// The user that the server runs as, when this process is root.
    user: Option<String>,
    /// The watchdog, which is the server's parent; none while the server is stopped.
    watchdog: Option<Child>,
    /// Last, so that it is removed after the server has ended.
    directory: TempDir,
}

impl LocalServer {
    pub(super) async fn start(programs: &Path, durability: Durability) -> Result<Self, ServerError> {
        let directory = tempfile::Builder::new()
            .prefix("durable-postgres-")
            .tempdir()
            .map_err(|source| ServerError::File {
                path: std::env::temp_dir(),
                source,
            })?;
        let user = if is_root() {
            Some(unprivileged_user()?)
        } else {
            None
        };
        let mut server = Self {
            programs: programs.to_owned(),
            durability,
            port: 0,
            user,
            watchdog: None,
            directory,
        };
        server.initialise()?;
        let mut attempt = 1;
        loop {
            server.port = free_port()?;
            match server.run().await {
                Err(ServerError::Ended { log }) if attempt < START_ATTEMPTS && port_was_taken(&log) => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// The server's process id, as the server itself wrote it down.
    pub(super) fn process_id(&self) -> Option<u32> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// Starts the server and waits until it answers. Does nothing when it is running.
    pub(super) async fn run(&mut self) -> Result<(), ServerError> {
        if self.watchdog.is_some() && !self.has_ended() {
            return Ok(());
        }
        let directory = self.directory.path().to_owned();
        let mut command = self.as_server_user("sh");
        command
            .args(["-c", include_str!("watchdog.sh"), "watchdog"])
            .arg(&directory)
            .arg(self.programs.join("postgres"))
            .arg("-D")
            .arg(self.data())
            .args(self.settings().iter().flat_map(|setting| ["-c", setting]))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of an interrupt from the terminal: the watchdog decides.
            .process_group(0);
        let watchdog = command
            .spawn()
            .map_err(|source| program_error(&command, source))?;
        self.watchdog = Some(watchdog);
        let url = self.url();
        wait_until_ready(&url, Some(self)).await
    }

    pub(super) async fn stop(&mut self, shutdown: Shutdown) -> Result<(), ServerError> {
        let Some(watchdog) = &mut self.watchdog else {
            return Ok(());
        };
        if let Some(mut pipe) = watchdog.stdin.take() {
            let signal = match shutdown {
                Shutdown::Fast => "INT\n",
                Shutdown::Immediate => "QUIT\n",
            };
            // A failure means that the server has ended already, which the loop below finds out.
            let _ = pipe.write_all(signal.as_bytes());
        }
        let deadline = Instant::now() + STOP_WITHIN;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return Err(ServerError::NotStopped { log: self.log_tail() });
            }
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
        self.watchdog = None;
        Ok(())
    }

    /// Whether the server that was started is gone.
    pub(super) fn has_ended(&mut self) -> bool {
        match &mut self.watchdog {
            Some(watchdog) => !matches!(watchdog.try_wait(), Ok(None)),
            None => true,
        }
    }

    pub(super) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Gives the directory to the server's user and fills it.
    fn initialise(&self) -> Result<(), ServerError> {
        if let Some(user) = &self.user {
            finish(Command::new("chown").arg(user).arg(self.directory.path()))?;
        }
        finish(
            self.as_server_user(self.programs.join("initdb"))
                .arg("-D")
                .arg(self.data())
                .args([
                    "--username=postgres",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--no-sync",
                ]),
        )
    }

    /// A command that runs as the user of the server, in its directory.
    fn as_server_user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.current_dir(self.directory.path());
        command
    }

    fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", self.directory.path().display()),
            "max_connections=300".to_owned(),
        ];
        settings.extend(
            self.durability
                .settings()
                .iter()
                .map(|&setting| setting.to_owned()),
        );
        settings
    }
}

impl Durability {
    /// The server settings behind the promise.
    pub(super) fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Off => &["fsync=off", "full_page_writes=off", "synchronous_commit=on"],
            Self::Full => &["shared_buffers=1GB", "max_wal_size=8GB"],
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        let Some(mut watchdog) = self.watchdog.take() else {
            return;
        };
        // The closed pipe tells the watchdog to end the server at once.
        drop(watchdog.stdin.take());
        let deadline = Instant::now() + STOP_WITHIN;
        while matches!(watchdog.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

/// A free port, chosen by chance so that processes that start at the same time seldom collide.
pub(super) fn free_port() -> Result<u16, ServerError> {
    std::iter::repeat_with(|| rand::random_range(PORTS))
        .take(PORT_ATTEMPTS)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .ok_or(ServerError::NoFreePort)
}

fn port_was_taken(log: &str) -> bool {
    log.contains("could not create any TCP/IP sockets") || log.contains("could not bind")
}

fn is_root() -> bool {
    answer("id", &["-u"]).is_some_and(|user| user == "0")
}

/// The user to run Postgres as when this process is root.
fn unprivileged_user() -> Result<String, ServerError> {
    ["postgres", "nobody"]
        .into_iter()
        .find(|user| answer("id", &["-u", user]).is_some())
        .map(str::to_owned)
        .ok_or(ServerError::NoUnprivilegedUser)
}

/// What a program prints, if it succeeds.
fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a command to its end; its output is part of the error.
fn finish(command: &mut Command) -> Result<(), ServerError> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| program_error(command, source))?;
    if output.status.success() {
        return Ok(());
    }
    Err(ServerError::Prepare {
        program: program_name(command),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn program_error(command: &Command, source: io::Error) -> ServerError {
    ServerError::Program {
        program: program_name(command),
        source,
    }
}

fn program_name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
