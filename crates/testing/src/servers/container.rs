//! A Postgres server in a container, for machines that have Docker but no Postgres programs.

use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt, TestcontainersError};

use super::Durability;

const IMAGE: &str = "postgres";
const VERSION: &str = "17";

/// A running container; it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct ContainerServer {
    _container: ContainerAsync<GenericImage>,
}

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
        Ok((
            Self {
                _container: container,
            },
            format!("postgres://postgres@{host}:{port}/postgres"),
        ))
    }
}
