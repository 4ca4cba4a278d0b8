//! Pokes from node to node, without a server between them.
//!
//! Who is there, and the secret that proves it, stand in the store (`registrar`). Messages are small datagrams
//! (`datagram`), to those whom they concern only.

mod address;
mod datagram;
mod link;
mod memory;
mod registrar;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use durable_core::poke::{Link, Node, PokeError, PokeTransport};
use tokio::net::UdpSocket;

use address::Address;
pub use address::InvalidAddress;
use link::{Receiver, Sender};
use registrar::Registrar;

/// Carries pokes from node to node, as UDP datagrams, to those nodes only that run the queue. There is nothing to
/// configure but the address at which others reach this node: the nodes of one store find each other through it, and it
/// keeps the secret by which they know each other (rules POKE-2, POKE-6).
///
/// What is sent is authenticated, and not encrypted: names of queues, numbers of instances and times can be read on the
/// way. Several stores in one process need a port each.
pub struct ClusterPokes {
    advertised: Address,
    bind: Option<SocketAddr>,
    identity: Arc<Identity>,
}

/// Who this node is for the others, over all of its connections.
struct Identity {
    id: u64,
    /// Of what it last said of itself.
    version: AtomicU64,
    /// Of its last datagram.
    number: AtomicU64,
}

impl ClusterPokes {
    /// A node that others reach at this address: an IP address or a name, with a port (`10.0.0.5:7400`,
    /// `[2001:db8::1]:7400`, `worker-3.internal:7400`), or without one: then any free port. It is looked up, and the port
    /// is opened, when an engine or a client uses it.
    ///
    /// # Errors
    /// [`InvalidAddress`]: it is none, or one that names no single machine (`0.0.0.0`).
    pub fn advertise(address: &str) -> Result<Self, InvalidAddress> {
        Ok(Self {
            advertised: Address::parse(address)?,
            bind: None,
            identity: Arc::new(Identity {
                id: rand::random(),
                version: AtomicU64::new(0),
                number: AtomicU64::new(0),
            }),
        })
    }

    /// Listens here, and not on all addresses of this machine at the advertised port: for one network card only, or where
    /// the port has another number outside of a container.
    #[must_use]
    pub const fn bind(mut self, address: SocketAddr) -> Self {
        self.bind = Some(address);
        self
    }

    /// From the value of a configuration, `cluster://ADDRESS` or `cluster://ADDRESS?bind=ADDRESS`.
    pub(crate) fn from_url(url: &str) -> Result<Self, InvalidAddress> {
        let rest = url.strip_prefix("cluster://").ok_or(InvalidAddress)?;
        let (address, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut pokes = Self::advertise(address.trim_end_matches('/'))?;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let bind = option.strip_prefix("bind=").ok_or(InvalidAddress)?;
            pokes = pokes.bind(bind.parse().map_err(|_| InvalidAddress)?);
        }
        Ok(pokes)
    }
}

impl fmt::Debug for ClusterPokes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClusterPokes")
            .field("advertised", &self.advertised)
            .field("bind", &self.bind)
            .finish_non_exhaustive()
    }
}

fn failed(message: impl fmt::Display) -> PokeError {
    PokeError {
        transport: "cluster",
        message: message.to_string(),
    }
}

#[async_trait]
impl PokeTransport for ClusterPokes {
    fn name(&self) -> &'static str {
        "cluster"
    }

    async fn connect(&self, node: &Node) -> Result<Link, PokeError> {
        let mut advertised = self.advertised.look_up().await.map_err(failed)?;
        let bind = self.bind.unwrap_or_else(|| Address::any(advertised));
        let socket = UdpSocket::bind(bind)
            .await
            .map_err(|error| failed(format_args!("listening at {bind}: {error}")))?;
        if advertised.port() == 0 {
            advertised.set_port(socket.local_addr().map_err(failed)?.port());
        }
        let socket = Arc::new(socket);
        let membership = Registrar::start(
            node.clone(),
            Arc::clone(&self.identity),
            Arc::clone(&socket),
            advertised,
        )
        .await
        .map_err(failed)?;
        Ok(Link {
            sender: Box::new(Sender::new(
                Arc::clone(&socket),
                Arc::clone(&self.identity),
                membership.known(),
            )),
            receiver: Box::new(Receiver::new(socket, self.identity.id, membership)),
            echoes: false,
        })
    }
}
