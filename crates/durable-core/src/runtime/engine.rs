//! A running engine: starts and stops the roles.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::builder::EngineBuilder;
use super::collector::Collector;
use super::committer::Committer;
use super::executor::Executor;
use super::expirer::Expirer;
use super::heartbeat::{Heartbeat, Keeper};
use super::hub::{HubHandle, Hubs};
use super::limits::{Limits, Renewer, Unblocker};
use super::local::Local;
use super::reaper::{Reaper, reap_all};
use super::scheduler::Scheduler;
use super::slots::Slots;
use super::surveyor::Surveyor;
use super::worker::{CurrentWorker, Worker};
use crate::client::Client;
use crate::error::StartError;
use crate::poke::Poking;
use crate::process::ProcessIdentity;
use crate::store::{NewWorker, Roles, Store};
use crate::types::{QueueName, WorkerId};

/// A running engine. Dropping it stops it without waiting; [`shutdown`](Engine::shutdown) waits.
pub struct Engine {
    store: Arc<dyn Store>,
    client: Client,
    name: String,
    local: Arc<Local>,
    worker: Arc<CurrentWorker>,
    slots: Vec<Arc<Slots>>,
    limits: Arc<Limits>,
    hub: Option<HubHandle>,
    /// Keeps the lanes open for outcomes that must be offered again while a shutdown waits for them.
    _committer: Committer,
    shutdown_limit: Duration,
    /// Stops claiming and maintenance; also the parent of every step's token.
    stop: CancellationToken,
    /// Drops running steps.
    give_up: CancellationToken,
    /// Stops the heartbeat, last of all.
    stop_heart: CancellationToken,
    roles: Mutex<JoinSet<()>>,
}

/// How long a shutdown waits at most until its last pokes are sent: who misses them polls.
const FLUSH_TIME: Duration = Duration::from_millis(200);
/// How often a shutdown looks whether all steps have ended.
const SHUTDOWN_LOOK: Duration = Duration::from_millis(5);
/// The part of the shutdown limit that is kept for giving back: a quarter, at most this.
const GIVE_BACK_TIME: Duration = Duration::from_secs(3);

impl Engine {
    /// Options for an engine on a store.
    pub fn builder(store: impl Into<Arc<dyn Store>>) -> EngineBuilder {
        EngineBuilder::new(store.into())
    }

    pub(crate) async fn start(builder: EngineBuilder) -> Result<Self, StartError> {
        let store = Arc::clone(&builder.store);
        let local = Local::of(&store.identity());
        if !local.take_name(&builder.name) {
            return Err(StartError::NameTaken { name: builder.name });
        }
        let new_worker = NewWorker {
            name: builder.name.clone(),
            lease: builder.lease,
            process: ProcessIdentity::current(),
            roles: Roles {
                reaper: builder.reaper,
                collector: builder.collector,
            },
        };
        let limits = Limits::start(
            Arc::clone(&store),
            Arc::clone(&local),
            builder.limiter.clone(),
            &builder.name,
            builder.lease,
        );
        match register(&store, &new_worker, &limits).await {
            Ok(id) => Ok(Self::run(builder, local, limits, new_worker, id)),
            Err(error) => {
                local.free_name(&builder.name);
                Err(error)
            }
        }
    }

    fn run(
        builder: EngineBuilder,
        local: Arc<Local>,
        limits: Arc<Limits>,
        new_worker: NewWorker,
        id: WorkerId,
    ) -> Self {
        let store = builder.store;
        let (stop, give_up, stop_heart) = Default::default();
        let stop: CancellationToken = stop;
        let worker = CurrentWorker::new(Worker::new(id, stop.child_token()));
        let mut roles = JoinSet::new();
        let (answers, answered) = mpsc::unbounded_channel();
        let heartbeat = Heartbeat {
            store: Arc::clone(&store),
            worker: Arc::clone(&worker),
            lease: builder.lease,
            answers,
            asked: local.running.asked(),
            stop: CancellationToken::clone(&stop_heart),
        };
        let renewer = Renewer {
            limits: Arc::clone(&limits),
            stop: CancellationToken::clone(&stop_heart),
        };
        start_heartbeat(heartbeat, renewer, builder.heartbeat_thread);
        let keeper = Keeper {
            store: Arc::clone(&store),
            local: Arc::clone(&local),
            limits: Arc::clone(&limits),
            new_worker,
            worker: Arc::clone(&worker),
            stopping: stop.clone(),
        };
        tokio::spawn(keeper.run(answered));

        let committer = Committer::start(Arc::clone(&store), Arc::clone(&local), Arc::clone(&limits));
        let machines = builder.registry.keys();
        let give_up: CancellationToken = give_up;
        let executor = Arc::new(Executor {
            registry: builder.registry,
            local: Arc::clone(&local),
            committer: committer.clone(),
            limits: Arc::clone(&limits),
            run_ahead: builder.run_ahead,
            stop: stop.clone(),
            give_up: give_up.clone(),
        });
        let mut slots = Vec::new();
        let mut queues = Vec::new();
        for queue in builder.queues {
            // Checked by the builder.
            let Ok(name) = QueueName::new(queue.name) else {
                continue;
            };
            queues.push(name.clone());
            let pool = Slots::new(name.clone(), queue.concurrency);
            slots.push(Arc::clone(&pool));
            let scheduler = Scheduler {
                store: Arc::clone(&store),
                executor: Arc::clone(&executor),
                worker: Arc::clone(&worker),
                machines: Arc::clone(&machines),
                // One that hears of nothing has a bell that nobody knows.
                poke: match builder.poking {
                    Poking::None => Arc::default(),
                    _ => local.doorbell(&name),
                },
                queue: name,
                concurrency: queue.concurrency,
                poll: builder.poll,
                slots: pool,
                stop: stop.clone(),
            };
            roles.spawn(scheduler.run());
        }
        if builder.reaper || !queues.is_empty() {
            let expirer = Expirer {
                store: Arc::clone(&store),
                alarm: local.alarm(),
                local: Arc::clone(&local),
                stop: stop.clone(),
            };
            roles.spawn(expirer.run());
            let unblocker = Unblocker {
                shared: Arc::clone(&limits.shared),
                repairs: builder.reaper,
                stop: stop.clone(),
            };
            roles.spawn(unblocker.run());
        }
        // Now that the queues have their bells: what is served is known to the others from the first moment on.
        let hub = match &builder.poking {
            Poking::Transport(transport) => Some(Hubs::join(&local, &store, transport)),
            Poking::None | Poking::Local => None,
        };
        let surveyor = Surveyor {
            store: Arc::clone(&store),
            queues,
            machines,
            stop: stop.clone(),
        };
        roles.spawn(surveyor.run());
        if builder.reaper {
            let (store, stop) = (Arc::clone(&store), stop.clone());
            roles.spawn(
                Reaper {
                    store,
                    local: Arc::clone(&local),
                    limits: Arc::clone(&limits),
                    lease: builder.lease,
                    stop,
                }
                .run(),
            );
        } else {
            tracing::info!(engine = builder.name, "the reaper is off in this process");
        }
        if builder.collector {
            let (store, stop) = (Arc::clone(&store), stop.clone());
            roles.spawn(
                Collector {
                    store,
                    retention: builder.retention,
                    stop,
                }
                .run(),
            );
        } else {
            tracing::info!(engine = builder.name, "the collector is off in this process");
        }
        Self {
            client: Client::new(Arc::clone(&store)).held(hub.clone()),
            store,
            name: builder.name,
            local,
            worker,
            slots,
            limits,
            hub,
            _committer: committer,
            shutdown_limit: builder.shutdown_limit,
            stop,
            give_up,
            stop_heart,
            roles: Mutex::new(roles),
        }
    }

    /// A client of the same store.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The worker that this engine is in the store's eyes now; another one after a lost lease.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker.get().id
    }

    /// Stops claiming, tells the steps, waits for them up to the shutdown limit, gives the rest back, and
    /// takes the worker off the store: nothing waits out a lease (rule OPS-2). A step that blocks its thread
    /// cannot be dropped; its instance waits for the lease.
    ///
    /// # Cancel safety
    /// If the future is dropped, the engine goes on stopping, as when it is dropped itself.
    pub async fn shutdown(self) {
        let started = Instant::now();
        self.stop.cancel();
        let mut roles = std::mem::take(&mut *self.roles.lock().unwrap_or_else(PoisonError::into_inner));
        let reserve = (self.shutdown_limit / 4).min(GIVE_BACK_TIME);
        let steps_until = started + self.shutdown_limit.saturating_sub(reserve);
        let all_until = started + self.shutdown_limit;
        let roles_ended = async { while roles.join_next().await.is_some() {} };
        if tokio::time::timeout_at(steps_until, roles_ended).await.is_err() {
            // A role ends by itself; aborting it could drop a call to the store midway.
            roles.detach_all();
        }
        self.steps_end(steps_until).await;
        self.give_up.cancel();
        self.steps_end(all_until).await;
        self.limits.leave(all_until).await;
        if let Some(handle) = &self.hub {
            // Others take up at once what was given back.
            handle.hub.flush(all_until.min(Instant::now() + FLUSH_TIME)).await;
        }
        let worker = self.worker();
        let closed = self.worker.get().claims.take_closed();
        let last = async {
            if !closed.is_empty() {
                self.store.release(worker, closed).await?;
            }
            self.store.retire(worker).await
        };
        match tokio::time::timeout_at(all_until, last).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => crate::observe::store_error("retire", &error),
            Err(_elapsed) => {
                tracing::warn!(%worker, "the shutdown limit passed first");
            }
        }
    }

    async fn steps_end(&self, until: Instant) {
        while self.slots.iter().any(|slots| slots.held() > 0) && Instant::now() < until {
            sleep(SHUTDOWN_LOOK).await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.cancel();
        self.give_up.cancel();
        self.stop_heart.cancel();
        if let Ok(roles) = self.roles.get_mut() {
            roles.detach_all();
        }
        self.local.free_name(&self.name);
        self.local.served.send_replace(());
    }
}

/// Registers, and declares dead what is proven dead: a predecessor of this process (rule LEASE-3).
async fn register(
    store: &Arc<dyn Store>,
    new_worker: &NewWorker,
    limits: &Limits,
) -> Result<WorkerId, StartError> {
    let id = store.register(new_worker.clone()).await?;
    if let Some(process) = &new_worker.process {
        let neighbours = store.neighbours(process.clone()).await?;
        let dead: Vec<WorkerId> = neighbours
            .into_iter()
            .filter(|(worker, other)| *worker != id && process.proves_dead(other))
            .map(|(worker, _)| worker)
            .collect();
        if !dead.is_empty() {
            tracing::info!(?dead, "taking back the work of dead predecessors");
            store.declare_dead(dead).await?;
            reap_all(store.as_ref(), limits).await?;
        }
    }
    Ok(id)
}

/// Runs the heartbeat on a thread of its own, or, when that cannot be had or is not wanted, as a task.
fn start_heartbeat(heartbeat: Heartbeat, renewer: Renewer, own_thread: bool) {
    let beats = async move {
        tokio::join!(heartbeat.run(), renewer.run());
    };
    if own_thread {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let thread = std::thread::Builder::new().name("durable-heartbeat".to_owned());
                if let Err(error) = thread.spawn(move || runtime.block_on(beats)) {
                    tracing::error!(%error, "no thread for heartbeats: the lease will end");
                }
                return;
            }
            Err(error) => tracing::warn!(%error, "heartbeats share the engine's runtime"),
        }
    }
    tokio::spawn(beats);
}
