//! The remote leg of pokes: keeps the connection of one transport, sends what the outbox holds, hands on what comes
//! (rules POKE-2, POKE-3, POKE-5).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::echo::Echo;
use super::local::Local;
use super::outbox::Outbox;
use super::pace::Pace;
use crate::chance;
use crate::observe;
use crate::poke::{
    Link, Message, Node, Poke, PokeError, PokeHealth, PokeReceiver, PokeSender, PokeTransport, Received,
};
use crate::store::Store;

/// So many sendings at once, ...
const BURST: u32 = 8;
/// ... and one per so much time in the long run, whatever the insert rate.
const GAP: Duration = Duration::from_millis(5);
/// The first pause after a failure, doubled up to ...
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// ... this one. Each is drawn from its upper half, so that nodes do not come back at the same instant.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A connection that held this long was a good one: the pauses start anew.
const HELD: Duration = Duration::from_secs(10);
/// How long connecting and sending may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The remote leg, for as long as somebody holds it.
pub(crate) struct Hub {
    transport: Arc<dyn PokeTransport>,
    pub(crate) outbox: Outbox,
    health: Mutex<PokeHealth>,
    stop: CancellationToken,
}

/// What an engine or a client holds; the last one ends the remote leg.
#[derive(Clone)]
pub(crate) struct HubHandle {
    pub(crate) hub: Arc<Hub>,
    _guard: Arc<DropGuard>,
}

/// The hubs of one store in this process.
#[derive(Default)]
pub(crate) struct Hubs(Mutex<Vec<(Weak<Hub>, Weak<DropGuard>)>>);

impl Hubs {
    fn lock(&self) -> MutexGuard<'_, Vec<(Weak<Hub>, Weak<DropGuard>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hub of a transport; one that is there already, or a new one, whose task starts here.
    pub(crate) fn join(
        local: &Arc<Local>,
        store: &Arc<dyn Store>,
        transport: &Arc<dyn PokeTransport>,
    ) -> HubHandle {
        let mut hubs = local.hubs.lock();
        hubs.retain(|(_, guard)| guard.strong_count() > 0);
        for (hub, guard) in hubs.iter() {
            if let (Some(hub), Some(_guard)) = (hub.upgrade(), guard.upgrade())
                && Arc::ptr_eq(&hub.transport, transport)
            {
                return HubHandle { hub, _guard };
            }
        }
        let hub = Arc::new(Hub {
            transport: Arc::clone(transport),
            outbox: Outbox::default(),
            health: Mutex::new(PokeHealth {
                transport: transport.name(),
                ..PokeHealth::default()
            }),
            stop: CancellationToken::new(),
        });
        let guard = Arc::new(hub.stop.clone().drop_guard());
        hubs.push((Arc::downgrade(&hub), Arc::downgrade(&guard)));
        let node = Node::of(Arc::clone(store), Arc::clone(local));
        tokio::spawn(Arc::clone(&hub).run(Arc::clone(local), node));
        HubHandle { hub, _guard: guard }
    }

    /// Does something with the outbox of each.
    pub(crate) fn tell(&self, what: impl Fn(&Outbox)) {
        for (hub, _) in self.lock().iter() {
            if let Some(hub) = hub.upgrade() {
                what(&hub.outbox);
            }
        }
    }

    /// How each is.
    pub(crate) fn health(&self) -> Vec<PokeHealth> {
        let hubs: Vec<_> = self.lock().iter().filter_map(|(hub, _)| hub.upgrade()).collect();
        hubs.iter().map(|hub| hub.health().clone()).collect()
    }
}

impl Hub {
    fn health(&self) -> MutexGuard<'_, PokeHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: impl FnOnce(&mut PokeHealth)) {
        what(&mut self.health());
    }

    /// Waits until all is sent, if it is connected.
    pub(crate) async fn flush(&self, until: Instant) {
        while !self.outbox.is_empty() && self.health().connected && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Connects again and again, until nobody holds it any more.
    async fn run(self: Arc<Self>, local: Arc<Local>, node: Node) {
        let mut pause = FIRST_PAUSE;
        let mut pace = Pace::new(BURST, GAP, Instant::now());
        while !self.stop.is_cancelled() {
            let started = Instant::now();
            let error = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                error = self.connected(&local, &node, &mut pace) => error,
            };
            self.lost(&error);
            if started.elapsed() >= HELD {
                pause = FIRST_PAUSE;
            }
            let drawn = chance::draw(pause / 2..=pause);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(drawn) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.note(|health| health.connected = false);
        observe::poke_connected(self.transport.name(), false);
    }

    fn lost(&self, error: &PokeError) {
        self.note(|health| {
            health.connected = false;
            health.last_error = Some(error.to_string());
        });
        observe::poke_connected(self.transport.name(), false);
        observe::poke_failed(self.transport.name(), error);
    }

    /// One connection, until it fails.
    async fn connected(&self, local: &Local, node: &Node, pace: &mut Pace) -> PokeError {
        let name = self.transport.name();
        let link = match tokio::time::timeout(PATIENCE, self.transport.connect(node)).await {
            Ok(Ok(link)) => link,
            Ok(Err(error)) => return error,
            Err(_elapsed) => return self.silent("connecting"),
        };
        let Link {
            sender,
            receiver,
            echoes,
        } = link;
        let echo = Echo::default();
        self.note(|health| {
            health.connected = true;
            health.connections += 1;
        });
        observe::poke_connected(name, true);
        // What was sent while it was away is lost: look once (rule POKE-5).
        local.ring_all();
        tokio::select! {
            biased;
            error = self.send(sender, local.node, pace, &echo) => error,
            error = self.receive(receiver, local, &echo) => error,
            () = echo.missed(), if echoes => self.failed("what was sent did not come back"),
        }
    }

    fn failed(&self, message: impl Into<String>) -> PokeError {
        PokeError {
            transport: self.transport.name(),
            message: message.into(),
        }
    }

    fn silent(&self, doing: &str) -> PokeError {
        self.failed(format!("{doing} took longer than {PATIENCE:?}"))
    }

    async fn send(
        &self,
        mut sender: Box<dyn PokeSender>,
        node: u64,
        pace: &mut Pace,
        echo: &Echo,
    ) -> PokeError {
        loop {
            tokio::select! {
                biased;
                () = self.outbox.filled() => {}
                () = echo.wanted() => {
                    let nothing = Message { from: node, pokes: Vec::new() };
                    if let Err(error) = self.send_one(&mut sender, &nothing, echo).await {
                        return error;
                    }
                    continue;
                }
            }
            tokio::time::sleep_until(pace.next(Instant::now())).await;
            pace.done(Instant::now());
            let taken = Taken::new(&self.outbox);
            for message in Message::pack(node, taken.pokes()) {
                if let Err(error) = self.send_one(&mut sender, &message, echo).await {
                    return error;
                }
                self.note(|health| health.sent += 1);
                observe::poke_message(self.transport.name(), "sent");
            }
            taken.sent();
        }
    }

    async fn send_one(
        &self,
        sender: &mut Box<dyn PokeSender>,
        message: &Message,
        echo: &Echo,
    ) -> Result<(), PokeError> {
        // Before it is: the echo may be here first.
        echo.sent();
        match tokio::time::timeout(PATIENCE, sender.send(message)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(self.silent("sending")),
        }
    }

    async fn receive(&self, mut receiver: Box<dyn PokeReceiver>, local: &Local, echo: &Echo) -> PokeError {
        let name = self.transport.name();
        loop {
            let bytes = match receiver.receive().await {
                Ok(Received::Message(bytes)) => bytes,
                Ok(Received::Dropped(reason)) => {
                    self.dropped(reason);
                    continue;
                }
                Ok(Received::Peers(peers)) => {
                    self.note(|health| health.peers = Some(peers));
                    observe::poke_peers(name, peers);
                    continue;
                }
                Err(error) => return error,
            };
            match Message::decode(&bytes) {
                Err(_) => self.dropped("malformed"),
                Ok(message) if message.from == local.node => {
                    echo.heard();
                    observe::poke_message(name, "echo");
                }
                Ok(message) => {
                    self.note(|health| health.received += 1);
                    observe::poke_message(name, "received");
                    message.pokes.into_iter().for_each(|poke| local.heard(poke));
                }
            }
        }
    }

    fn dropped(&self, reason: &'static str) {
        self.note(|health| *health.dropped.entry(reason).or_default() += 1);
        observe::poke_dropped(self.transport.name(), reason);
    }
}

/// What was taken out of the outbox; goes back there unless it was sent, also when the sending is dropped.
struct Taken<'a> {
    outbox: &'a Outbox,
    waiting: Option<super::outbox::Waiting>,
}

impl<'a> Taken<'a> {
    fn new(outbox: &'a Outbox) -> Self {
        Self {
            outbox,
            waiting: Some(outbox.take()),
        }
    }

    fn pokes(&self) -> Vec<Poke> {
        let now = Instant::now();
        self.waiting
            .as_ref()
            .map(|waiting| waiting.pokes(now))
            .unwrap_or_default()
    }

    fn sent(mut self) {
        self.waiting = None;
        self.outbox.sent();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.outbox.put_back(waiting);
        }
    }
}
