//! The two ends of a connection: datagrams to those whom they concern, and what is accepted of those that come.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use durable_core::poke::{Message, Poke, PokeError, PokeReceiver, PokeSender, Received};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::Instant;

use super::datagram::{Drop, Kind, LARGEST, USUAL_BODY, take_apart};
use super::memory::{Memory, is_fresh};
use super::registrar::{Known, Membership, send, write};
use super::{Identity, failed};

/// So much time per datagram in the long run: with many nodes, pokes are gathered for longer, so that a storm of inserts
/// costs a bounded part of the processor, whatever the number of nodes.
const EACH: Duration = Duration::from_micros(500);

pub(super) struct Sender {
    socket: Arc<UdpSocket>,
    identity: Arc<Identity>,
    known: watch::Receiver<Arc<Known>>,
    rests_until: Instant,
}

impl Sender {
    pub(super) fn new(
        socket: Arc<UdpSocket>,
        identity: Arc<Identity>,
        known: watch::Receiver<Arc<Known>>,
    ) -> Self {
        Self {
            socket,
            identity,
            known,
            rests_until: Instant::now(),
        }
    }
}

#[async_trait]
impl PokeSender for Sender {
    async fn send(&mut self, message: &Message) -> Result<(), PokeError> {
        tokio::time::sleep_until(self.rests_until).await;
        let known = Arc::clone(&self.known.borrow());
        let mut sent = 0;
        for other in &known.others {
            let concerns = |poke: &&Poke| poke.concerns(&other.serves);
            let pokes: Vec<Poke> = message.pokes.iter().filter(concerns).cloned().collect();
            for part in Message::pack_within(USUAL_BODY, message.from, pokes) {
                let body = part.encode();
                if let Some(datagram) = write(&known, &self.identity, other.id, Kind::Pokes, body.as_bytes())
                {
                    send(&self.socket, &datagram, other.address).await;
                    sent += 1;
                }
            }
        }
        self.rests_until = Instant::now() + EACH * sent;
        Ok(())
    }
}

pub(super) struct Receiver {
    socket: Arc<UdpSocket>,
    id: u64,
    membership: Membership,
    known: watch::Receiver<Arc<Known>>,
    memory: Memory,
    /// One byte more than the largest, to tell what is too large.
    buffer: Box<[u8]>,
}

impl Receiver {
    pub(super) fn new(socket: Arc<UdpSocket>, id: u64, membership: Membership) -> Self {
        let mut known = membership.known();
        // How many there are is told first of all.
        known.mark_changed();
        Self {
            socket,
            id,
            membership,
            known,
            memory: Memory::default(),
            buffer: vec![0; LARGEST + 1].into(),
        }
    }

    /// The message of a datagram; `None` if it has none for the engine.
    fn accept(&mut self, length: usize) -> Result<Option<Vec<u8>>, Drop> {
        let unproven = take_apart(self.buffer.get(..length).unwrap_or_default())?;
        let header = unproven.header;
        if header.to != self.id {
            return Err(Drop::Stray);
        }
        let (known, now) = (self.membership.now(), Instant::now());
        let secret = known.accepts(header.secret, now).ok_or(Drop::Forged)?;
        let body = unproven.prove(&secret.key)?;
        is_fresh(header.made_at, known.clock(now))?;
        self.memory.note(header.from, header.number, now)?;
        match header.kind {
            Kind::Pokes => Ok(Some(body.to_vec())),
            Kind::Hello => {
                let version = u64::from_be_bytes(body.try_into().map_err(|_| Drop::Malformed)?);
                if !known.knows(header.from, version) {
                    self.membership.look();
                }
                Ok(None)
            }
        }
    }
}

#[async_trait]
impl PokeReceiver for Receiver {
    async fn receive(&mut self) -> Result<Received, PokeError> {
        loop {
            let length = tokio::select! {
                biased;
                Ok(()) = self.known.changed() => {
                    return Ok(Received::Peers(self.known.borrow_and_update().others.len()));
                }
                length = self.socket.recv(&mut self.buffer) => length,
            };
            let length = match length {
                Ok(length) => length,
                // Some systems tell in this way that something that was sent has not arrived.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
                Err(error) => return Err(failed(error)),
            };
            match self.accept(length) {
                Ok(Some(message)) => return Ok(Received::Message(message)),
                Ok(None) => {}
                Err(drop) => return Ok(Received::Dropped(drop.reason())),
            }
        }
    }
}
