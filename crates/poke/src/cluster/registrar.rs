//! Keeps a node on the list of members, and its knowledge of the others fresh (rule POKE-2).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use durable_core::StoreError;
use durable_core::poke::Node;
use durable_core::store::{Meeting, Member, Secret, Serves};
use rand::RngExt as _;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Identity;
use super::datagram::{Header, Kind, seal};

/// How often the store is asked, at least; each pause is drawn from its last fifth.
const REFRESH: Duration = Duration::from_secs(10);
/// The pause after the store gave no answer.
const PAUSE: Duration = Duration::from_secs(2);
/// The shortest time between two looks, whatever others say.
const SHORTEST: Duration = Duration::from_millis(250);
/// In so much time at most others know of a node that has greeted them.
const KNOWN_SOON: Duration = Duration::from_millis(300);
/// A node that was silent for so long is not sent to any more: it has missed three refreshes.
const ABSENT_AFTER: Duration = Duration::from_secs(35);
/// A new secret is used for sending once all nodes must have read it, ...
const KNOWN_TO_ALL: Duration = Duration::from_secs(40);
/// ... and the one before is accepted for as long again.
const CHANGED_OVER: Duration = Duration::from_secs(80);

/// What a node knows of the others.
pub(super) struct Known {
    pub(super) others: Vec<Member>,
    secrets: Vec<Secret>,
    /// The store's clock, ...
    clock: Duration,
    /// ... at this instant.
    read_at: Instant,
}

impl Known {
    fn new(meeting: Meeting, read_at: Instant) -> Self {
        Self {
            others: meeting.others,
            secrets: meeting.secrets,
            clock: meeting.clock,
            read_at,
        }
    }

    /// Milliseconds of the store's clock.
    pub(super) fn clock(&self, now: Instant) -> u64 {
        let clock = self.clock + now.saturating_duration_since(self.read_at);
        u64::try_from(clock.as_millis()).unwrap_or(u64::MAX)
    }

    fn age(&self, secret: &Secret, now: Instant) -> Duration {
        secret.age + now.saturating_duration_since(self.read_at)
    }

    /// The secret to send with: the newest that all others must know by now; `None` if the store gave none.
    fn sends_with(&self, now: Instant) -> Option<&Secret> {
        let known = |secret: &&Secret| self.age(secret, now) >= KNOWN_TO_ALL;
        self.secrets.iter().rev().find(known).or(self.secrets.first())
    }

    /// The secret of a number, if it is still one to accept.
    pub(super) fn accepts(&self, number: u64, now: Instant) -> Option<&Secret> {
        let at = self.secrets.iter().position(|secret| secret.number == number)?;
        let over = |newer: &Secret| self.age(newer, now) >= CHANGED_OVER;
        if self.secrets.get(at + 1).is_some_and(over) {
            return None;
        }
        self.secrets.get(at)
    }

    /// Whether this is known of a node already.
    pub(super) fn knows(&self, id: u64, version: u64) -> bool {
        self.others
            .iter()
            .any(|other| other.id == id && other.version >= version)
    }
}

/// A datagram of this node to another.
pub(super) fn write(known: &Known, identity: &Identity, to: u64, kind: Kind, body: &[u8]) -> Option<Vec<u8>> {
    let now = Instant::now();
    let secret = known.sends_with(now)?;
    let header = Header {
        kind,
        secret: secret.number,
        from: identity.id,
        to,
        made_at: known.clock(now),
        number: identity.number.fetch_add(1, Ordering::Relaxed) + 1,
    };
    Some(seal(header, body, &secret.key))
}

/// Sends a datagram. One that cannot be sent is as one that is lost on the way: that costs a poll.
pub(super) async fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(datagram, to).await {
        tracing::debug!(%error, %to, "a poke could not be sent");
    }
}

/// The membership of one connection; ends with it.
pub(super) struct Membership {
    known: watch::Receiver<Arc<Known>>,
    look: Arc<Notify>,
    _stop: DropGuard,
}

impl Membership {
    pub(super) fn known(&self) -> watch::Receiver<Arc<Known>> {
        self.known.clone()
    }

    /// What is known now.
    pub(super) fn now(&self) -> Arc<Known> {
        Arc::clone(&self.known.borrow())
    }

    /// Another node has something new to say: the store is asked soon.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }
}

pub(super) struct Registrar {
    node: Node,
    identity: Arc<Identity>,
    socket: Arc<UdpSocket>,
    address: SocketAddr,
    version: u64,
    known: watch::Sender<Arc<Known>>,
    look: Arc<Notify>,
    stop: CancellationToken,
}

impl Registrar {
    /// Puts a node on the list, and keeps it there for as long as the answer is held.
    pub(super) async fn start(
        node: Node,
        identity: Arc<Identity>,
        socket: Arc<UdpSocket>,
        address: SocketAddr,
    ) -> Result<Membership, StoreError> {
        let nothing = Known {
            others: Vec::new(),
            secrets: Vec::new(),
            clock: Duration::ZERO,
            read_at: Instant::now(),
        };
        let (sender, known) = watch::channel(Arc::new(nothing));
        let stop = CancellationToken::new();
        let look = Arc::<Notify>::default();
        let mut registrar = Self {
            node,
            version: next_version(&identity),
            identity,
            socket,
            address,
            known: sender,
            look: Arc::clone(&look),
            stop: stop.clone(),
        };
        let membership = Membership {
            known,
            look,
            _stop: stop.drop_guard(),
        };
        registrar.meet().await?;
        if registrar.greet().await > 0 && registrar.node.serves() != Serves::default() {
            // From when the others know of it: whoever connects looks for work then, and finds what was told to nobody.
            tokio::time::sleep(KNOWN_SOON).await;
        }
        tokio::spawn(registrar.run());
        Ok(membership)
    }

    async fn run(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            if pause.is_zero() {
                pause = REFRESH.mul_f64(rand::rng().random_range(0.8..=1.0));
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.node.changed() => self.version = next_version(&self.identity),
                () = self.look.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            let started = Instant::now();
            pause = match self.meet().await {
                Ok(()) => {
                    self.greet().await;
                    Duration::ZERO
                }
                Err(error) => {
                    tracing::warn!(%error, "the list of nodes could not be read");
                    PAUSE
                }
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep_until(started + SHORTEST) => {}
            }
        }
        // One that another connection of this process has written since stays.
        if let Err(error) = self.node.store().part(self.identity.id, self.version).await {
            tracing::debug!(%error, "the node stays on the list until it is found silent");
        }
    }

    async fn meet(&mut self) -> Result<(), StoreError> {
        let member = Member {
            id: self.identity.id,
            version: self.version,
            address: self.address,
            serves: self.node.serves(),
        };
        let meeting = self.node.store().meet(member, ABSENT_AFTER).await?;
        self.known
            .send_replace(Arc::new(Known::new(meeting, Instant::now())));
        Ok(())
    }

    /// Tells the others which version of itself this node has written, and says how many there are. Those who know it
    /// have nothing to do.
    async fn greet(&self) -> usize {
        let known = Arc::clone(&self.known.borrow());
        let body = self.version.to_be_bytes();
        for other in &known.others {
            if let Some(hello) = write(&known, &self.identity, other.id, Kind::Hello, &body) {
                send(&self.socket, &hello, other.address).await;
            }
        }
        known.others.len()
    }
}

fn next_version(identity: &Identity) -> u64 {
    identity.version.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(ages: &[u64], read_at: Instant) -> Known {
        let secret = |(number, age): (u64, &u64)| Secret {
            number,
            key: [0; 32],
            age: Duration::from_secs(*age),
        };
        Known {
            others: Vec::new(),
            secrets: (1..).zip(ages).map(secret).collect(),
            clock: Duration::from_secs(100),
            read_at,
        }
    }

    #[test]
    fn a_new_secret_is_sent_with_once_all_must_know_it_and_the_old_one_ends_later() {
        // contract: POKE-6
        let start = Instant::now();
        let sends_with = |ages: &[u64], later: u64| {
            let now = start + Duration::from_secs(later);
            known(ages, start).sends_with(now).map(|secret| secret.number)
        };
        assert_eq!(sends_with(&[], 0), None);
        assert_eq!(sends_with(&[0], 0), Some(1), "the first of all");
        assert_eq!(sends_with(&[100, 0], 39), Some(1));
        assert_eq!(
            sends_with(&[100, 0], 40),
            Some(2),
            "without asking the store again"
        );
        let accepts = |ages: &[u64], number: u64, later: u64| {
            let now = start + Duration::from_secs(later);
            known(ages, start).accepts(number, now).is_some()
        };
        assert!(accepts(&[100, 0], 1, 79) && accepts(&[100, 0], 2, 0));
        assert!(!accepts(&[100, 0], 1, 80) && accepts(&[100, 0], 2, 1_000_000));
        assert!(!accepts(&[100, 0], 3, 0), "one that is not known");
    }

    #[test]
    fn the_clock_of_the_store_goes_on() {
        let start = Instant::now();
        assert_eq!(
            known(&[], start).clock(start + Duration::from_millis(1_500)),
            101_500
        );
    }
}
