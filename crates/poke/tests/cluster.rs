//! The transport between nodes: whom it reaches, who is believed, who is forgotten. An attacker here sits between the
//! nodes: it sees every datagram to a node, and lets through what it likes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Member, Serves};
use durable_core::{Client, Engine, Insert, InstanceId, PokeHealth, QueueName, Store};
use durable_poke::ClusterPokes;
use durable_testing::MemoryStore;
use durable_testing::memory::Call;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::conformance::cluster::addresses;
use crate::postgres::{Errand, HOUR, WITHIN, until};

const SECOND: Duration = Duration::from_secs(1);

fn node(store: &MemoryStore) -> Arc<dyn Store> {
    Arc::new(store.in_another_process())
}

async fn engine(store: &MemoryStore, queue: &'static str, pokes: ClusterPokes) -> Engine {
    let engine = Engine::builder(node(store))
        .queue(queue)
        .job::<Errand>()
        .poll_interval(HOUR)
        .lease(HOUR)
        .heartbeat_thread(false)
        .poke(Arc::new(pokes))
        .start()
        .await
        .expect("started");
    until(engine.client(), |health| health.connected).await;
    engine
}

fn here() -> ClusterPokes {
    ClusterPokes::advertise("127.0.0.1").expect("an address")
}

/// A process without an engine, which knows so many others.
async fn web(store: &MemoryStore, others: usize) -> Client {
    let web = Client::new(node(store)).poking(Arc::new(here()));
    until(&web, |health| health.peers == Some(others)).await;
    web
}

fn health(client: &Client) -> PokeHealth {
    client.poke_health().remove(0)
}

async fn insert(client: &Client) -> InstanceId {
    let inserted = client.insert(Insert::job(Errand)).await;
    inserted.expect("inserted").id()
}

async fn ends(client: &Client, id: InstanceId) {
    let result = client.result::<()>(id, WITHIN).await;
    result.expect("done, an hour before the poll");
}

/// Moves the clocks of all nodes on, second by second, so that all do what they do in that time.
async fn later(time: Duration) {
    for _ in 0..time.as_secs() {
        tokio::time::pause();
        tokio::time::advance(SECOND).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn only_nodes_that_run_the_queue_are_reached() {
    // contract: POKE-2
    let store = MemoryStore::new();
    let errands = engine(&store, "default", here()).await;
    let others = engine(&store, "others", here()).await;
    let bystander_store = node(&store);
    let bystander = Client::new(Arc::clone(&bystander_store)).poking(Arc::new(here()));
    let web = web(&store, 3).await;
    for _ in 0..20 {
        ends(&web, insert(&web).await).await;
    }
    assert!(health(errands.client()).received >= 20);
    assert_eq!(health(others.client()).received, 0);
    assert_eq!(health(&bystander).received, 0);
    // A second engine in a process that served nothing of it: the others learn of that at once.
    let second = Engine::builder(Arc::clone(&bystander_store))
        .queue("default")
        .job::<Errand>()
        .poll_interval(HOUR)
        .lease(HOUR)
        .heartbeat_thread(false)
        .start()
        .await
        .expect("started");
    errands.shutdown().await;
    until(&web, |health| health.peers == Some(2)).await;
    while health(&bystander).received == 0 {
        ends(&web, insert(&web).await).await;
    }
    assert_eq!(health(others.client()).received, 0);
    second.shutdown().await;
}

/// Sits in front of a node: what is sent to it comes here, and goes on only if the test sends it.
struct Between {
    seen: mpsc::UnboundedReceiver<Vec<u8>>,
    socket: Arc<UdpSocket>,
    node: SocketAddr,
}

impl Between {
    /// An attacker, and the transport of the node behind it.
    async fn new() -> (Self, ClusterPokes) {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
        let advertised = socket.local_addr().expect("bound");
        // The port behind it: one that was free a moment ago.
        let free = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let node = free.local_addr().expect("bound");
        drop(free);
        let (sender, seen) = mpsc::unbounded_channel();
        let listening = Arc::clone(&socket);
        tokio::spawn(async move {
            let mut buffer = vec![0; 10_000];
            while let Ok(length) = listening.recv(&mut buffer).await {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let pokes = ClusterPokes::advertise(&advertised.to_string()).expect("an address");
        (Self { seen, socket, node }, pokes.bind(node))
    }

    /// The next datagram with pokes in it; the greetings go through.
    async fn catch(&mut self) -> Vec<u8> {
        loop {
            let caught = tokio::time::timeout(WITHIN, self.seen.recv()).await;
            let datagram = caught.expect("in time").expect("it listens");
            if datagram[1] == 1 {
                return datagram;
            }
            self.send(&datagram).await;
        }
    }

    async fn send(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.node).await.expect("sent");
    }
}

async fn dropped(client: &Client, reason: &'static str, times: u64) {
    until(client, |health| health.dropped.get(reason) == Some(&times)).await;
}

#[tokio::test]
async fn what_is_forged_replayed_led_astray_or_stale_is_dropped_and_counted() {
    // contract: POKE-6
    let store = MemoryStore::new();
    let (mut between, behind) = Between::new().await;
    let victim = engine(&store, "default", behind).await;
    let other = engine(&store, "others", here()).await;
    let web = web(&store, 2).await;
    let claims = || store.faults().calls(Call::Claim);

    let id = insert(&web).await;
    let good = between.catch().await;
    let before = claims();
    for at in [0, 1, 2, 10, 20, 30, 40, 50, good.len() - 1] {
        let mut forged = good.clone();
        forged[at] ^= 0x80;
        between.send(&forged).await;
    }
    // The form and the kind are looked at first, then whom it is for.
    dropped(victim.client(), "malformed", 2).await;
    dropped(victim.client(), "stray", 1).await;
    dropped(victim.client(), "forged", 6).await;
    for bytes in [&good[..good.len() - 1], &[], &vec![1; 9_000]] {
        between.send(bytes).await;
    }
    dropped(victim.client(), "malformed", 3).await;
    dropped(victim.client(), "forged", 7).await;
    dropped(victim.client(), "oversized", 1).await;
    assert_eq!((health(victim.client()).received, claims()), (0, before));

    between.send(&good).await;
    ends(&web, id).await;
    between.send(&good).await;
    dropped(victim.client(), "replayed", 1).await;
    assert_eq!(health(victim.client()).received, 1);

    // Another node takes nothing that was meant for this one.
    let own = between.socket.local_addr().expect("bound");
    for address in addresses(&node(&store)).await {
        if address == own {
            continue;
        }
        between.socket.send_to(&good, address).await.expect("sent");
    }
    dropped(other.client(), "stray", 1).await;

    insert(&web).await;
    let held_back = between.catch().await;
    later(40 * SECOND).await;
    between.send(&held_back).await;
    dropped(victim.client(), "stale", 1).await;
    assert_eq!(health(victim.client()).received, 1);
    ends(&web, {
        let id = insert(&web).await;
        let good = between.catch().await;
        between.send(&good).await;
        id
    })
    .await;
    assert_eq!(health(victim.client()).connections, 1);
}

#[tokio::test]
async fn fuzzed_datagrams_are_never_accepted() {
    // contract: POKE-6
    let store = MemoryStore::new();
    let (mut between, behind) = Between::new().await;
    let victim = engine(&store, "default", behind).await;
    let web = web(&store, 1).await;
    insert(&web).await;
    let good = between.catch().await;
    let mut random = SmallRng::seed_from_u64(7);
    let mut sent = 0;
    for round in 0..200 {
        for _ in 0..50 {
            let mut bytes = good.clone();
            if random.random_ratio(1, 4) {
                bytes = vec![0; random.random_range(0..9_000)];
                random.fill(&mut bytes[..]);
            }
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..bytes.len().max(1)).min(bytes.len());
                match random.random_range(0..4) {
                    0 => bytes.insert(at, random.random()),
                    1 => bytes.truncate(at),
                    2 => bytes.extend_from_slice(&good),
                    _ if at < bytes.len() => bytes[at] = random.random(),
                    _ => {}
                }
            }
            if bytes != good {
                between.send(&bytes).await;
                sent += 1;
            }
        }
        // Not faster than it is read, so that none is lost.
        until(victim.client(), |health| {
            health.dropped.values().sum::<u64>() == sent
        })
        .await;
        assert_eq!(health(victim.client()).received, 0, "round {round}");
    }
    between.send(&good).await;
    until(victim.client(), |health| health.received == 1).await;
    assert_eq!(health(victim.client()).connections, 1);
}

#[tokio::test]
async fn a_renewed_secret_loses_no_message_and_takes_over() {
    // contract: POKE-6
    let store = MemoryStore::new();
    let (mut between, behind) = Between::new().await;
    let victim = engine(&store, "default", behind).await;
    let web = web(&store, 1).await;
    let mut secrets = Vec::new();
    web.renew_poke_secret().await.expect("renewed");
    for _ in 0..8 {
        let id = insert(&web).await;
        let datagram = between.catch().await;
        secrets.push(datagram[9]);
        between.send(&datagram).await;
        ends(&web, id).await;
        later(15 * SECOND).await;
    }
    assert_eq!(secrets, [1, 1, 1, 2, 2, 2, 2, 2], "once all must have read it");
    assert!(health(victim.client()).dropped.is_empty());
}

#[tokio::test]
async fn members_that_die_age_out_and_a_store_that_is_away_changes_nothing() {
    // contract: POKE-2
    let store = MemoryStore::new();
    let victim = engine(&store, "default", here()).await;
    // One that was killed: it never takes itself off the list.
    let grave = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let dead = Member {
        id: 1,
        version: 1,
        address: grave.local_addr().expect("bound"),
        serves: Serves {
            queues: [QueueName::new("default").expect("a name")].into(),
            deadlines: false,
        },
    };
    store.meet(dead, HOUR).await.expect("met");
    let web = web(&store, 2).await;
    ends(&web, insert(&web).await).await;
    let mut buffer = [0; 2_000];
    let heard = tokio::time::timeout(WITHIN, grave.recv(&mut buffer)).await;
    assert!(heard.is_ok_and(|heard| heard.is_ok()), "it is still sent to");

    store.faults().hold(Call::Meet);
    later(30 * SECOND).await;
    ends(&web, insert(&web).await).await;
    assert_eq!(health(&web).peers, Some(2), "as before");
    store.faults().let_go(Call::Meet);
    later(6 * SECOND).await;
    until(&web, |health| health.peers == Some(1)).await;
    ends(&web, insert(&web).await).await;
    assert_eq!(health(&web).connections, 1);
    victim.shutdown().await;
    until(&web, |health| health.peers == Some(0)).await;
}
