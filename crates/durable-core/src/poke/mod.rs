//! Pokes: best-effort hints between the processes of one store (rules POKE-1 to POKE-6).
//!
//! A transport carries [`Message`]s and decides nothing: coalescing, pacing, echoes, reconnection and what a hint
//! leads to are the runtime's. Nothing that a poke says is believed: it makes a process look at the store. A lost
//! one costs a poll, a forged one a look.

mod message;
mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;

use crate::types::QueueName;

pub use message::{LARGEST_MESSAGE, Malformed, Message, Poke};
pub use node::Node;

/// Carries pokes between processes.
///
/// A connection is made, used until its first error, and made again: the runtime does that, with growing pauses.
#[async_trait]
pub trait PokeTransport: Send + Sync + 'static {
    /// What metrics call it: short, and the same for all of its kind.
    fn name(&self) -> &'static str;

    /// Connects a process. When it returns, what others send from now on will be received.
    ///
    /// # Errors
    /// [`PokeError`], after which it is tried again.
    async fn connect(&self, node: &Node) -> Result<Link, PokeError>;
}

/// The two ends of a connection; they are used at the same time.
pub struct Link {
    /// Sends to all others; the own process may be among them.
    pub sender: Box<dyn PokeSender>,
    /// Receives from the others, and maybe what the own process sent.
    pub receiver: Box<dyn PokeReceiver>,
    /// Whether all that is sent comes back too. Then a connection over which it does not is given up: it is half open, or
    /// led through a proxy that loses what is sent to listeners.
    pub echoes: bool,
}

/// What came over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message, as the bytes that came: they are not trusted before [`Message::decode`].
    Message(Vec<u8>),
    /// Something that the transport did not accept, and dropped. The reason is counted: a word, one of few.
    Dropped(&'static str),
    /// So many other processes are known to the transport now; for those that can know it.
    Peers(usize),
}

/// Sends messages.
#[async_trait]
pub trait PokeSender: Send {
    /// Sends one message to every process that it may concern.
    ///
    /// # Errors
    /// [`PokeError`]: the connection is given up.
    async fn send(&mut self, message: &Message) -> Result<(), PokeError>;
}

/// Receives messages.
#[async_trait]
pub trait PokeReceiver: Send {
    /// What comes next.
    ///
    /// # Errors
    /// [`PokeError`]: the connection is given up.
    ///
    /// # Cancel safety
    /// The connection is given up when the call is dropped.
    async fn receive(&mut self) -> Result<Received, PokeError>;
}

/// A connection for pokes failed.
#[derive(Debug, thiserror::Error)]
#[error("the {transport} transport of pokes failed: {message}")]
pub struct PokeError {
    /// The name of the transport.
    pub transport: &'static str,
    /// What went wrong.
    pub message: String,
}

/// What an engine hears of new work.
#[derive(Clone, Default)]
pub enum Poking {
    /// Nothing: it finds work by polling alone.
    None,
    /// What happens in its own process. The default.
    #[default]
    Local,
    /// What happens in its own process, and in others through a transport. Give the engines and clients of one
    /// process the same one, and they share its connection.
    Transport(Arc<dyn PokeTransport>),
}

impl<T: PokeTransport> From<Arc<T>> for Poking {
    fn from(transport: Arc<T>) -> Self {
        Self::Transport(transport)
    }
}

impl From<Arc<dyn PokeTransport>> for Poking {
    fn from(transport: Arc<dyn PokeTransport>) -> Self {
        Self::Transport(transport)
    }
}

/// What a transaction of the caller's makes runnable once it commits. Give it to
/// [`Client::poke`](crate::Client::poke) after the commit, else the work is found at the next poll (rule INS-2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "work that nobody is told of waits for the next poll"]
pub struct Pokes {
    pub(crate) queues: BTreeSet<QueueName>,
    pub(crate) anything: bool,
}

impl Pokes {
    /// A queue has work.
    pub fn queue(&mut self, queue: &QueueName) {
        if !self.queues.contains(queue) {
            self.queues.insert(queue.clone());
        }
    }

    /// Some queue may have work: of the target of a signal, say.
    pub const fn anything(&mut self) {
        self.anything = true;
    }
}

/// How the connection of a transport is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PokeHealth {
    /// The name of the transport.
    pub transport: &'static str,
    /// Whether it is connected.
    pub connected: bool,
    /// How often it has connected.
    pub connections: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received from other processes.
    pub received: u64,
    /// How many messages were dropped, by reason; `malformed` are those that were not understood.
    pub dropped: BTreeMap<&'static str, u64>,
    /// How many other processes it knows, if it is a transport that can know it.
    pub peers: Option<usize>,
    /// Why it last failed, if it ever did.
    pub last_error: Option<String>,
}
