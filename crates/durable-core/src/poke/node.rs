//! The process that a transport connects.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::runtime::local::Local;
use crate::store::{Serves, Store};

/// The process that a transport connects, and what it may ask of it. Most transports need none of it.
#[derive(Clone)]
pub struct Node {
    store: Arc<dyn Store>,
    local: Arc<Local>,
    changes: watch::Receiver<()>,
}

impl Node {
    /// What the engines and clients of a store are in this process.
    pub fn new(store: impl Into<Arc<dyn Store>>) -> Self {
        let store = store.into();
        let local = Local::of(&store.identity());
        Self::of(store, local)
    }

    pub(crate) fn of(store: Arc<dyn Store>, local: Arc<Local>) -> Self {
        Self {
            store,
            changes: local.served.subscribe(),
            local,
        }
    }

    /// What all of them share: a transport may keep there what processes need to find each other.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What the engines of this process serve now, and hear of.
    #[must_use]
    pub fn serves(&self) -> Serves {
        self.local.serves()
    }

    /// Resolves once that may have changed since this was called last, or the node was made.
    ///
    /// # Cancel safety
    /// No change is missed.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            // The sender is part of what this holds.
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Node")
            .field("serves", &self.serves())
            .finish_non_exhaustive()
    }
}
