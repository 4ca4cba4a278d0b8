//! The seam for simulations: how each call goes, and who sees what it did.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use super::faults::Fault;
use super::{Call, State};

/// How the calls of one handle go.
#[async_trait]
pub(crate) trait Course: Send + Sync {
    /// Before a call takes effect: what it waits for, and what goes wrong.
    async fn before(&self, call: Call) -> Option<Fault>;

    /// Between the effect and the answer.
    async fn after(&self, call: Call);
}

/// Sees each effect, while nobody else can change anything. It must not call the store.
pub(crate) trait Witness: Send {
    fn saw(&mut self, seen: &Seen<'_>);
}

/// How an instance stands.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) terminal: bool,
    pub(crate) visit: u32,
}

/// A call that took effect.
pub(crate) struct Seen<'a> {
    /// The time by the store's clock.
    pub(crate) now: Duration,
    /// The handle's process.
    pub(crate) process: u64,
    pub(crate) call: Call,
    pub(crate) asked: &'a dyn Debug,
    pub(crate) answer: &'a dyn Debug,
    /// Whether the caller will hear of it.
    pub(crate) lost: bool,
    pub(crate) state: &'a State,
}
