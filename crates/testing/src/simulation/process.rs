//! The processes of a simulation: each an engine with a handle of the store of its own, which can be killed, frozen and
//! started anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use durable_core::{Engine, EngineBuilder, StartError, WorkerId};
use tokio::sync::Notify;

use super::fate::Fate;
use super::trace::Trace;
use crate::memory::{Call, Course, Fault, Faults, MemoryStore};
use crate::pokes::MemoryPokes;

/// How engines are built, for each start of a process.
pub(super) type Build = Arc<dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync>;

/// The pause before a process that could not start tries again.
const START_PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Running,
    /// What it asks of the store waits: a process that was stopped, or a machine that was.
    Frozen,
    /// Nothing of it reaches the store any more.
    Dead,
}

/// How the calls of one life of a process go.
struct Life {
    fate: Arc<Fate>,
    condition: Mutex<Condition>,
    thawed: Notify,
}

impl Life {
    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn becomes(&self, condition: Condition) {
        *self.condition() = condition;
        self.thawed.notify_waiters();
    }

    /// Resolves while the process runs; never when it is dead.
    async fn runs(&self) {
        loop {
            let thawed = self.thawed.notified();
            let condition = *self.condition();
            match condition {
                Condition::Running => return,
                Condition::Frozen => thawed.await,
                Condition::Dead => std::future::pending().await,
            }
        }
    }
}

#[async_trait]
impl Course for Life {
    async fn before(&self, _call: Call) -> Option<Fault> {
        self.fate.pass().await;
        self.runs().await;
        self.fate.fault()
    }

    async fn after(&self, _call: Call) {
        self.fate.pass().await;
        self.runs().await;
    }
}

/// How the calls of the outside world go: slowly, and never wrong.
pub(super) struct Outside {
    pub(super) fate: Arc<Fate>,
    pub(super) faults: Faults,
}

#[async_trait]
impl Course for Outside {
    async fn before(&self, _call: Call) -> Option<Fault> {
        self.fate.pass().await;
        while self.faults.holds_any() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }

    async fn after(&self, _call: Call) {
        self.fate.pass().await;
    }
}

/// One process.
pub(super) struct Process {
    number: usize,
    build: Build,
    store: MemoryStore,
    pokes: MemoryPokes,
    fate: Arc<Fate>,
    trace: Trace,
    now: Mutex<Option<(Arc<Life>, Option<Engine>)>>,
}

impl Process {
    pub(super) fn new(
        number: usize,
        build: Build,
        store: MemoryStore,
        pokes: MemoryPokes,
        fate: Arc<Fate>,
        trace: Trace,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            build,
            store,
            pokes,
            fate,
            trace,
            now: Mutex::new(None),
        })
    }

    fn now(&self) -> MutexGuard<'_, Option<(Arc<Life>, Option<Engine>)>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: &str) {
        let now = self.store.look(|_, now| now);
        self.trace.note(now, &format!("machine {} {what}", self.number));
    }

    pub(super) fn is_alive(&self) -> bool {
        self.now().is_some()
    }

    /// Starts it, unless it is alive.
    pub(super) fn start(self: &Arc<Self>) {
        if self.is_alive() {
            return;
        }
        self.note("starts");
        let life = Arc::new(Life {
            fate: Arc::clone(&self.fate),
            condition: Mutex::new(Condition::Running),
            thawed: Notify::new(),
        });
        *self.now() = Some((Arc::clone(&life), None));
        tokio::spawn(Arc::clone(self).live(life));
    }

    async fn live(self: Arc<Self>, life: Arc<Life>) {
        let store = self.store.on(Arc::clone(&life) as Arc<dyn Course>);
        // A process that was killed meanwhile waits for its call for ever.
        loop {
            let engine = Engine::builder(store.clone())
                .poke(self.pokes.node())
                .heartbeat_thread(false);
            match (self.build)(engine).start().await {
                Ok(engine) => {
                    if let Some((now, slot)) = &mut *self.now()
                        && Arc::ptr_eq(now, &life)
                    {
                        *slot = Some(engine);
                    }
                    return;
                }
                Err(StartError::Store(_)) => tokio::time::sleep(START_PAUSE).await,
                Err(error) => return self.trace.violate(error.to_string()),
            }
        }
    }

    /// Kills it: nothing that it does reaches the store any more.
    pub(super) fn kill(&self) {
        let Some((life, engine)) = self.now().take() else {
            return;
        };
        self.note("is killed");
        life.becomes(Condition::Dead);
        drop(engine);
    }

    /// Freezes it: what it asks of the store waits.
    pub(super) fn freeze(&self) {
        if let Some((life, _)) = &*self.now() {
            life.becomes(Condition::Frozen);
        }
        self.note("freezes");
    }

    /// Lets it go on.
    pub(super) fn thaw(&self) {
        if let Some((life, _)) = &*self.now() {
            life.becomes(Condition::Running);
        }
        self.note("goes on");
    }

    /// Stops it as a deployment would; the worker that it was.
    pub(super) async fn shut_down(&self) -> Option<WorkerId> {
        let now = self.now().take();
        self.note("shuts down");
        let (_, engine) = now?;
        let engine = engine?;
        let worker = engine.worker();
        engine.shutdown().await;
        Some(worker)
    }
}
