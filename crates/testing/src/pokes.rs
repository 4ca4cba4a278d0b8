//! A transport of pokes in memory, which a test can cut, feed with anything, and count.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use durable_core::poke::{Link, Message, Node, PokeError, PokeReceiver, PokeSender, PokeTransport, Received};
use tokio::sync::{broadcast, watch};

/// How many messages a receiver may be behind.
const BACKLOG: usize = 10_000;

/// Carries pokes within one process. A clone is another handle of the same transport; engines of one process that
/// play several processes each need one of their own ([`node`](Self::node)).
#[derive(Clone, Default)]
pub struct MemoryPokes {
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Wire {
    /// `None` while it is cut.
    messages: Mutex<Option<broadcast::Sender<Vec<u8>>>>,
    sent: AtomicU64,
    refused: AtomicU64,
    lost: AtomicBool,
    connected: watch::Sender<usize>,
}

impl Wire {
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
        let _ = sender.send(message.encode().into_bytes());
        Ok(())
    }
}

struct MemoryReceiver {
    messages: broadcast::Receiver<Vec<u8>>,
    connected: watch::Receiver<usize>,
    wire: Arc<Wire>,
}

impl MemoryReceiver {
    fn new(messages: broadcast::Receiver<Vec<u8>>, wire: &Arc<Wire>) -> Self {
        let connected = wire.connected.subscribe();
        wire.connected.send_modify(|connected| *connected += 1);
        Self {
            messages,
            connected,
            wire: Arc::clone(wire),
        }
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        self.wire.connected.send_modify(|connected| *connected -= 1);
    }
}

#[async_trait]
impl PokeReceiver for MemoryReceiver {
    async fn receive(&mut self) -> Result<Received, PokeError> {
        loop {
            let message = tokio::select! {
                biased;
                Ok(()) = self.connected.changed() => {
                    return Ok(Received::Peers(*self.connected.borrow_and_update() - 1));
                }
                message = self.messages.recv() => message.map_err(|_| cut("receiving"))?,
            };
            if !self.wire.lost.load(Ordering::Relaxed) {
                return Ok(Received::Message(message));
            }
        }
    }
}
