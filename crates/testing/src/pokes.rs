//! A transport of pokes in memory, which a test can cut, feed with anything, and count.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use durable_core::poke::{Link, Message, Node, PokeError, PokeReceiver, PokeSender, PokeTransport, Received};
use tokio::sync::{Notify, broadcast};

/// How many messages a receiver may be behind.
const BACKLOG: usize = 10_000;

/// Carries pokes within one process. A clone is another handle of the same transport; engines of one process that
/// play several processes each need one of their own ([`node`](Self::node)).
#[derive(Clone, Default)]
pub struct MemoryPokes {
    wire: Arc<Wire>,
}

/// How often the next message arrives.
type Copies = Box<dyn Fn() -> usize + Send + Sync>;

#[derive(Default)]
struct Wire {
    copies: Option<Copies>,
    /// `None` while it is cut.
    messages: Mutex<Option<broadcast::Sender<Vec<u8>>>>,
    sent: AtomicU64,
    refused: AtomicU64,
    lost: AtomicBool,
    connected: AtomicUsize,
    /// Wakes in the order in which they came, which a watch channel does not promise: a simulation replays it.
    connected_moved: Notify,
}

impl Wire {
    /// So many connections more, or fewer.
    fn connect(&self, more: isize) {
        self.connected.fetch_add(more.cast_unsigned(), Ordering::AcqRel);
        self.connected_moved.notify_waiters();
    }

    fn sender(&self) -> Option<broadcast::Sender<Vec<u8>>> {
        self.messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn cut(what: &str) -> PokeError {
    PokeError {
        transport: "memory",
        message: format!("{what}: it is cut"),
    }
}

impl MemoryPokes {
    /// A transport that works.
    #[must_use]
    pub fn new() -> Self {
        let pokes = Self::default();
        pokes.restore();
        pokes
    }

    /// One that works, and whose messages arrive as often as it is said here.
    pub(crate) fn copied(copies: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        let wire = Wire {
            copies: Some(Box::new(copies)),
            ..Wire::default()
        };
        let pokes = Self { wire: Arc::new(wire) };
        pokes.restore();
        pokes
    }

    /// The transport for one process.
    #[must_use]
    pub fn node(&self) -> Arc<dyn PokeTransport> {
        Arc::new(self.clone())
    }

    /// Ends every connection, and refuses new ones.
    pub fn cut(&self) {
        *self.wire.messages.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Lets connections be made again.
    pub fn restore(&self) {
        let sender = broadcast::channel(BACKLOG).0;
        *self.wire.messages.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    }

    /// Whether what is sent is lost from now on, with nobody told: as when a connection is half open.
    pub fn lose(&self, lose: bool) {
        self.wire.lost.store(lose, Ordering::Relaxed);
    }

    /// Lets connections be made again, if it was cut.
    pub(crate) fn restore_if_cut(&self) {
        if self.wire.sender().is_none() {
            self.restore();
        }
    }

    /// Has everybody receive these bytes.
    pub fn inject(&self, bytes: &[u8]) {
        if let Some(sender) = self.wire.sender() {
            // Nobody may be connected.
            let _ = sender.send(bytes.to_vec());
        }
    }

    /// How many messages were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.wire.sent.load(Ordering::Relaxed)
    }

    /// How many tries to connect were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.wire.refused.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl PokeTransport for MemoryPokes {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn connect(&self, _node: &Node) -> Result<Link, PokeError> {
        let Some(sender) = self.wire.sender() else {
            self.wire.refused.fetch_add(1, Ordering::Relaxed);
            return Err(cut("connecting"));
        };
        Ok(Link {
            sender: Box::new(MemorySender(Arc::clone(&self.wire))),
            receiver: Box::new(MemoryReceiver::new(sender.subscribe(), &self.wire)),
            echoes: true,
        })
    }
}

struct MemorySender(Arc<Wire>);

#[async_trait]
impl PokeSender for MemorySender {
    async fn send(&mut self, message: &Message) -> Result<(), PokeError> {
        let sender = self.0.sender().ok_or_else(|| cut("sending"))?;
        self.0.sent.fetch_add(1, Ordering::Relaxed);
        for _ in 0..self.0.copies.as_ref().map_or(1, |copies| copies()) {
            let _ = sender.send(message.encode().into_bytes());
        }
        Ok(())
    }
}

struct MemoryReceiver {
    messages: broadcast::Receiver<Vec<u8>>,
    /// How many connections it knows of.
    connected: usize,
    wire: Arc<Wire>,
}

impl MemoryReceiver {
    fn new(messages: broadcast::Receiver<Vec<u8>>, wire: &Arc<Wire>) -> Self {
        wire.connect(1);
        Self {
            messages,
            // The first call tells how many there are.
            connected: 0,
            wire: Arc::clone(wire),
        }
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        self.wire.connect(-1);
    }
}

#[async_trait]
impl PokeReceiver for MemoryReceiver {
    async fn receive(&mut self) -> Result<Received, PokeError> {
        loop {
            let moved = self.wire.connected_moved.notified();
            let connected = self.wire.connected.load(Ordering::Acquire);
            if connected != self.connected {
                self.connected = connected;
                return Ok(Received::Peers(connected - 1));
            }
            let message = tokio::select! {
                biased;
                () = moved => continue,
                message = self.messages.recv() => message.map_err(|_| cut("receiving"))?,
            };
            if !self.wire.lost.load(Ordering::Relaxed) {
                return Ok(Received::Message(message));
            }
        }
    }
}
