//! A Postgres server in a container, for machines that have Docker but no Postgres programs.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt, TestcontainersError};

use super::Durability;

const IMAGE: &str = "postgres";
const VERSION: &str = "17";

/// A running container; it is removed when this is dropped, or when this process ends in any other way.
#[derive(Debug)]
pub(super) struct ContainerServer {
    _container: ContainerAsync<GenericImage>,
    /// Its standard input closes with this process. Without the `docker` program there is none, and a killed
    /// process leaves its container behind.
    _watchdog: Option<Child>,
}

/// Waits for the end of its input, then removes the container.
const WATCHDOG: &str = "cat >/dev/null; docker rm --force --volumes \"$1\" >/dev/null 2>&1";

impl ContainerServer {
    /// Starts the container; the server may need a little longer until it answers at the address.
    pub(super) async fn start(durability: Durability) -> Result<(Self, String), TestcontainersError> {
        let settings = durability.settings().iter().chain(&["max_connections=300"]);
        let command = ["postgres"]
            .into_iter()
            .chain(settings.flat_map(|&setting| ["-c", setting]));
        let container = GenericImage::new(IMAGE, VERSION)
            .with_exposed_port(5432.tcp())
            .with_wait_for(WaitFor::message_on_stderr(
                "database system is ready to accept connections",
            ))
            .with_env_var("POSTGRES_HOST_AUTH_METHOD", "trust")
            .with_cmd(command)
            .start()
            .await?;
        let host = container.get_host().await?;
        let port = container.get_host_port_ipv4(5432.tcp()).await?;
        // A group of its own, so that Ctrl-C ends this process and not the watchdog.
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", container.id()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok();
        Ok((
            Self {
                _container: container,
                _watchdog: watchdog,
            },
            format!("postgres://postgres@{host}:{port}/postgres"),
        ))
    }
}
