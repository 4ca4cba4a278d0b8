//! What happens to processes while the storm lasts: one misfortune after another, drawn from the seed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::fate::Fate;
use super::process::Process;
use super::trace::Trace;
use crate::memory::MemoryStore;
use crate::pokes::MemoryPokes;

/// How long a misfortune lasts at most: longer than a lease by default.
const LONGEST: u64 = 20_000;

/// Brings misfortune over the processes.
pub(super) struct Misfortune {
    pub(super) fate: Arc<Fate>,
    pub(super) trace: Trace,
    pub(super) store: MemoryStore,
    pub(super) pokes: MemoryPokes,
    pub(super) processes: Vec<Arc<Process>>,
}

impl Misfortune {
    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let calm = u64::try_from(self.fate.climate.calm.as_millis()).unwrap_or(u64::MAX);
        loop {
            sleep(Duration::from_millis(self.fate.draw(0..=calm))).await;
            self.strike().await;
        }
    }

    fn note(&self, what: &str) {
        self.trace.note(self.store.look(|_, now| now), what);
    }

    async fn strike(&self) {
        let which = self.fate.draw(0..=self.processes.len() - 1);
        let process = &self.processes[which];
        let time = Duration::from_millis(self.fate.draw(1..=LONGEST));
        match self.fate.draw(0..=9) {
            0..=2 => {
                process.kill();
                // Sometimes it is back before its lease has ended, sometimes others take over.
                sleep(time).await;
                process.start();
            }
            3 | 4 => {
                process.freeze();
                sleep(time).await;
                process.thaw();
            }
            5 => {
                process.shut_down().await;
                process.start();
            }
            6 => {
                self.note("the store goes away");
                self.fate.goes_away(time);
            }
            7 => {
                self.note("pokes are cut");
                self.pokes.cut();
                sleep(time).await;
                self.pokes.restore();
            }
            _ => self.hold_a_row(time).await,
        }
    }

    /// Somebody else's transaction holds the row of an instance.
    async fn hold_a_row(&self, time: Duration) {
        let ids = self.store.look(|state, _| state.ids());
        if ids.is_empty() {
            return;
        }
        let id = ids[self.fate.draw(0..=ids.len() - 1)];
        self.note(&format!("instance {id} is held"));
        self.store.faults().lock(id);
        sleep(time).await;
        self.store.faults().unlock(id);
        self.note(&format!("instance {id} is let go"));
    }
}
