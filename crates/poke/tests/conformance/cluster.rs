//! Datagrams between nodes. Nothing in between could be cut, so connections end by hand.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use durable_core::Poking;
use durable_core::poke::{Link, Node, PokeError, PokeReceiver, PokeTransport, Received};
use durable_core::store::{Member, Serves, Store};
use durable_poke::ClusterPokes;
use durable_testing::poke_conformance::Subject;
use tokio::net::UdpSocket;
use tokio::sync::watch;

/// The addresses of all nodes of a store but one.
pub(crate) async fn addresses(store: &Arc<dyn Store>) -> Vec<SocketAddr> {
    let stranger = Member {
        id: 0,
        version: 0,
        address: ([127, 0, 0, 1], 9).into(),
        serves: Serves::default(),
    };
    let met = store.meet(stranger, Duration::from_secs(60)).await.expect("met");
    store.part(0, 0).await.expect("gone");
    met.others.iter().map(|member| member.address).collect()
}

struct Cluster {
    works: watch::Sender<bool>,
    store: Arc<Mutex<Option<Arc<dyn Store>>>>,
}

/// Ends its connections, and makes none, while it does not work.
struct Breakable {
    pokes: ClusterPokes,
    works: watch::Receiver<bool>,
    store: Arc<Mutex<Option<Arc<dyn Store>>>>,
}

struct Receiver {
    receiver: Box<dyn PokeReceiver>,
    works: watch::Receiver<bool>,
}

fn broken() -> PokeError {
    PokeError {
        transport: "cluster",
        message: "broken by the test".to_owned(),
    }
}

#[async_trait]
impl PokeTransport for Breakable {
    fn name(&self) -> &'static str {
        self.pokes.name()
    }

    async fn connect(&self, node: &Node) -> Result<Link, PokeError> {
        if !*self.works.borrow() {
            return Err(broken());
        }
        *self.store.lock().expect("not poisoned") = Some(Arc::clone(node.store()));
        let Link {
            sender,
            receiver,
            echoes,
        } = self.pokes.connect(node).await?;
        let works = self.works.clone();
        let receiver = Box::new(Receiver { receiver, works });
        Ok(Link {
            sender,
            receiver,
            echoes,
        })
    }
}

#[async_trait]
impl PokeReceiver for Receiver {
    async fn receive(&mut self) -> Result<Received, PokeError> {
        tokio::select! {
            _ = self.works.wait_for(|works| !works) => Err(broken()),
            received = self.receiver.receive() => received,
        }
    }
}

impl Subject for Cluster {
    async fn fresh() -> Self {
        Self {
            works: watch::Sender::new(true),
            store: Arc::default(),
        }
    }

    fn poking(&self) -> Poking {
        let pokes = ClusterPokes::advertise("127.0.0.1").expect("an address");
        let (works, store) = (self.works.subscribe(), Arc::clone(&self.store));
        Arc::new(Breakable { pokes, works, store }).into()
    }

    async fn cut(&mut self) {
        self.works.send_replace(false);
    }

    async fn restore(&mut self) {
        self.works.send_replace(true);
    }

    async fn inject(&self, bytes: &[u8]) {
        let store = self
            .store
            .lock()
            .expect("not poisoned")
            .clone()
            .expect("connected");
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        for address in addresses(&store).await {
            socket.send_to(bytes, address).await.expect("sent");
        }
    }
}

durable_testing::poke_conformance_tests!(Cluster);
