//! The limiter of one engine, and the holder that the engine is there.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::limiter::{Limiter, LimiterError, SlotHolder};
use crate::observe;

pub(crate) struct Backend {
    pub(crate) limiter: Arc<dyn Limiter>,
    label: String,
    pub(crate) lease: Duration,
    /// Joins when the first step needs it: an engine that never runs one costs the backend nothing.
    holder: OnceCell<Arc<dyn SlotHolder>>,
}

impl Backend {
    pub(crate) fn new(limiter: Arc<dyn Limiter>, label: &str, lease: Duration) -> Self {
        Self {
            limiter,
            label: label.to_owned(),
            lease,
            holder: OnceCell::new(),
        }
    }

    pub(crate) async fn holder(&self) -> Result<&Arc<dyn SlotHolder>, LimiterError> {
        self.holder
            .get_or_try_init(|| self.limiter.join(&self.label, self.lease))
            .await
    }

    /// The holder, if it has joined.
    pub(crate) fn joined(&self) -> Option<&Arc<dyn SlotHolder>> {
        self.holder.get()
    }

    pub(crate) async fn leave(&self) {
        if let Some(holder) = self.joined()
            && let Err(error) = holder.leave().await
        {
            observe::limiter_error("leave", &error);
        }
    }
}
