//! The steps that run in this process, so that a cancellation reaches them at once (rule CANCEL-1).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::local::Local;
use crate::context::StepTokens;
use crate::types::InstanceId;

/// The steps that run, of all engines of one store in this process.
#[derive(Default)]
pub(crate) struct Running {
    steps: Mutex<Steps>,
    /// Changed when another process says that a cancellation of a step here was asked for.
    asked: watch::Sender<()>,
}

/// After a lost lease one instance may run twice, so each step has a number too.
#[derive(Default)]
struct Steps {
    last: u64,
    tokens: BTreeMap<(InstanceId, u64), StepTokens>,
}

/// A step that runs, until it is dropped.
pub(crate) struct Registration {
    local: Arc<Local>,
    key: (InstanceId, u64),
}

impl Running {
    /// Registers a step.
    pub(crate) fn register(local: &Arc<Local>, id: InstanceId, tokens: StepTokens) -> Registration {
        let mut steps = local.running.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.last += 1;
        let key = (id, steps.last);
        steps.tokens.insert(key, tokens);
        drop(steps);
        Registration {
            local: Arc::clone(local),
            key,
        }
    }

    /// Changes when a heartbeat should ask the store at once whether a cancellation was asked for.
    pub(crate) fn asked(&self) -> watch::Receiver<()> {
        self.asked.subscribe()
    }

    /// Has the store asked whether the cancellation of an instance was asked for, if it runs here.
    pub(crate) fn ask_about(&self, id: InstanceId) {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.tokens.range((id, 0)..=(id, u64::MAX)).next().is_some() {
            self.asked.send_replace(());
        }
    }

    /// Tells the steps of an instance that its cancellation was asked for.
    pub(crate) fn cancel(&self, id: InstanceId) {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<StepTokens> = steps
            .tokens
            .range((id, 0)..=(id, u64::MAX))
            .map(|(_, tokens)| tokens.clone())
            .collect();
        drop(steps);
        // Outside of the lock: who waits for a token is woken here.
        found.iter().for_each(StepTokens::cancel);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut steps = self
            .local
            .running
            .steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        steps.tokens.remove(&self.key);
    }
}
