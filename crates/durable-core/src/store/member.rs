//! Processes that reach each other directly, and the secret that they share (rules POKE-2, POKE-6).

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::types::QueueName;

/// What a process does, as far as hints concern it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serves {
    /// The queues that it runs.
    pub queues: BTreeSet<QueueName>,
    /// Whether it fires the deadlines of waits.
    pub deadlines: bool,
}

/// A process that others can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// A random number, for as long as the process lives.
    pub id: u64,
    /// Rises whenever the rest changes.
    pub version: u64,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it does.
    pub serves: Serves,
}

/// One of the secrets by which members know each other. The store made it; it never leaves the store and the members.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Later ones have higher numbers.
    pub number: u64,
    /// The secret itself.
    pub key: [u8; 32],
    /// How long ago it was made.
    pub age: Duration,
}

/// Without the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Secret")
            .field("number", &self.number)
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}

/// What a member is told when it says that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The store's clock, since 1970. Only for comparing times of members with each other.
    pub clock: Duration,
    /// The other members that were there lately. In the order of their numbers.
    pub others: Vec<Member>,
    /// The secrets, oldest first; at least one.
    pub secrets: Vec<Secret>,
}
