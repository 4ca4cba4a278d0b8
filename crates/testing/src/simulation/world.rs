//! What a scenario does from outside of the engines.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use durable_core::{Client, InstanceId};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::fate::Fate;
use super::process::Process;
use super::trace::Trace;
use crate::memory::MemoryStore;
use crate::pokes::MemoryPokes;

/// How often it is looked whether all work has ended.
const LOOK: Duration = Duration::from_millis(100);

/// The world of one simulation: what its scenario has in hand. A clone is another handle of the same world.
#[derive(Clone)]
pub struct World(pub(super) Arc<Inside>);

pub(super) struct Inside {
    pub(super) fate: Arc<Fate>,
    pub(super) trace: Trace,
    pub(super) store: MemoryStore,
    pub(super) pokes: MemoryPokes,
    pub(super) client: Client,
    pub(super) processes: Vec<Arc<Process>>,
    pub(super) misfortune: Mutex<Option<JoinHandle<()>>>,
    pub(super) patience: Duration,
}

impl World {
    /// A client of the store, in a process of its own that nothing happens to: a web server, say. Its calls never fail.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// A number of a range, drawn from the seed.
    pub fn draw(&self, range: RangeInclusive<u64>) -> u64 {
        self.0.fate.draw(range)
    }

    /// Waits for a time drawn from the seed, up to this one, to the millisecond.
    pub async fn pause(&self, up_to: Duration) {
        let longest = u64::try_from(up_to.as_millis()).unwrap_or(u64::MAX);
        sleep(Duration::from_millis(self.draw(0..=longest))).await;
    }

    /// Kills one of the processes, chosen by the seed, and starts it anew after a time drawn from the seed, up to this one.
    pub async fn crash(&self, back_within: Duration) {
        let which = self.draw(0..=self.0.processes.len() as u64 - 1);
        if let Some(process) = usize::try_from(which)
            .ok()
            .and_then(|which| self.0.processes.get(which))
        {
            process.kill();
            self.pause(back_within).await;
            process.start();
        }
    }

    /// Ends the storm: nothing goes wrong any more, and every process lives.
    pub fn calm_down(&self) {
        let misfortune = self
            .0
            .misfortune
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(misfortune) = misfortune {
            misfortune.abort();
        }
        self.0.fate.calm_down();
        self.0.store.faults().clear();
        self.0.pokes.restore_if_cut();
        for process in &self.0.processes {
            if process.is_alive() {
                process.thaw();
            } else {
                process.start();
            }
        }
    }

    /// Ends the storm, and waits until no instance has anything left to do by itself: each is terminal, or waits for a
    /// signal that has no deadline, or for such a child. The simulation fails if that takes longer than
    /// [`Simulation::patience`](super::Simulation::patience).
    pub async fn settle(&self) {
        self.calm_down();
        let until = Instant::now() + self.0.patience;
        loop {
            let at_work = self.0.store.look(|state, _| state.at_work());
            if at_work.is_empty() {
                return;
            }
            if Instant::now() >= until {
                self.0.trace.violate(self.describe(&at_work).await);
                // The simulation ends here.
                std::future::pending::<()>().await;
            }
            sleep(LOOK).await;
        }
    }

    /// How often an instance was given to a worker: no step can have begun more often.
    pub(super) fn grants(&self, id: InstanceId) -> u64 {
        self.0.trace.grants(id)
    }

    async fn describe(&self, ids: &[InstanceId]) -> String {
        let mut text = format!("these did not end within {:?} after the storm:", self.0.patience);
        for id in ids.iter().take(5) {
            match self.0.client.snapshot(*id).await {
                Ok(Some(snapshot)) => text.push_str(&format!("\n  {snapshot:?}")),
                _ => text.push_str(&format!("\n  {id}, which is gone")),
            }
        }
        text
    }
}
