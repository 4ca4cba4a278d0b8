//! Plays a history on one store, and says its answers in words that do not depend on the ids it gave.

mod commit;
mod told;
mod waiting;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Beat, ClaimRequest, Heart, Inserted, NewWorker, Retention};
use durable_core::{ClaimNumber, Fence, InstanceId, Store, StoreError, WorkerId};

use super::call::{Call, Entry};
use super::vocabulary::{HOUR, correlation_key, machine_keys, new_instance, queue_name, value};

/// More rounds of a reaper or collector than any history needs.
const MOST_ROUNDS: usize = 1000;

/// One store under play, and what it has said so far.
pub(super) struct Player {
    store: Arc<dyn Store>,
    heart: Box<dyn Heart>,
    workers: Vec<Worker>,
    /// In the order of the inserts; children when their parent's fan-out was committed.
    instances: Vec<InstanceId>,
    /// In the order in which outcomes parked them, again for each.
    parked: Vec<InstanceId>,
    /// In the order in which they failed or were cancelled, again for each.
    ended: Vec<InstanceId>,
    /// The claims that brought something, with their workers. Numbers are those of the history, so that no
    /// two workers share one: a fence shown by another worker then names no claim of its own.
    claims: Vec<(usize, ClaimNumber)>,
    last_claim: i64,
    fences: Vec<Given>,
}

struct Worker {
    id: WorkerId,
    /// It was declared dead, or its lease is over: the next reaping takes its work.
    lost: bool,
}

/// A fence that a claim gave.
#[derive(Clone, Copy)]
struct Given {
    worker: usize,
    id: InstanceId,
    fence: Fence,
    /// What the claim said of its parent.
    parent: Option<InstanceId>,
    /// How many signals it had received, as the claim said.
    received: u32,
    /// Whether nobody has used it, released it, or taken it back.
    open: bool,
}

impl Player {
    /// Begins a history, with two workers.
    pub(super) async fn begin(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let mut player = Self {
            heart: store.heart(),
            store,
            workers: Vec::new(),
            instances: Vec::new(),
            parked: Vec::new(),
            ended: Vec::new(),
            claims: Vec::new(),
            last_claim: 0,
            fences: Vec::new(),
        };
        player.register(false).await?;
        player.register(false).await?;
        Ok(player)
    }

    /// Plays one call and says the answer in words.
    pub(super) async fn play(&mut self, call: &Call) -> String {
        match self.answer(call).await {
            Ok(answer) => answer,
            Err(StoreError::Refused { .. }) => "refused".to_owned(),
            Err(StoreError::WorkerDead) => "worker dead".to_owned(),
            Err(other) => format!("error: {other}"),
        }
    }

    async fn answer(&mut self, call: &Call) -> Result<String, StoreError> {
        match call {
            Call::Insert(entries) => self.insert(entries).await,
            Call::Claim {
                worker,
                queue,
                machines,
                limit,
            } => self.claim(self.worker(*worker), *queue, machines, *limit).await,
            Call::Commit {
                worker,
                outcomes,
                close,
            } => self.commit(self.holder(*worker), outcomes, *close).await,
            Call::Resolve { worker, picks } => self.resolve(self.worker(*worker), picks).await,
            Call::Release { worker, claims } => self.release(self.worker(*worker), claims).await,
            Call::Register { ended } => self.register(*ended).await,
            Call::Beat { worker } => self.beat(self.worker(*worker)).await,
            Call::DeclareDead { worker } => {
                let worker = self.worker(*worker);
                self.store.declare_dead(vec![self.workers[worker].id]).await?;
                self.workers[worker].lost = true;
                Ok("ok".to_owned())
            }
            Call::Retire { worker } => {
                let worker = self.workers[self.worker(*worker)].id;
                self.store.retire(worker).await.map(|()| "ok".to_owned())
            }
            Call::Reap { limit } => self.reap(*limit).await,
            Call::Collect {
                done,
                failed,
                cancelled,
                limit,
            } => {
                let kept = |gone: &bool| if *gone { Duration::ZERO } else { HOUR };
                let retention = Retention {
                    done: kept(done),
                    failed: kept(failed),
                    cancelled: kept(cancelled),
                };
                self.collect(retention, *limit).await
            }
            Call::MakeDue { queue, machines } => {
                let made_due = self.store.make_due(queue_name(*queue)?, machine_keys(machines)?);
                made_due.await.map(|count| format!("{count} made due"))
            }
            Call::Find { key } => {
                let found = self.store.find(correlation_key(*key)?).await?;
                Ok(found.map_or_else(|| "nothing".to_owned(), |id| self.name(id)))
            }
            Call::Deliver(signals) => self.deliver(signals).await,
            Call::Operate { whom, act } => self.operate(whom, *act).await,
            Call::Expire { limit } => self.expire(*limit).await,
            Call::Settlements => self.settlements().await,
            Call::UnfinishedChildren => self.unfinished_children().await,
            Call::Snapshots => self.snapshots().await,
        }
    }

    /// A worker, counted around from the newest.
    fn worker(&self, position: usize) -> usize {
        self.workers.len() - 1 - position % self.workers.len()
    }

    /// A worker that still holds something, if any does; else any.
    fn holder(&self, position: usize) -> usize {
        let holds = |at: &usize| self.fences.iter().any(|it| it.open && it.worker == *at);
        let holders: Vec<usize> = (0..self.workers.len()).rev().filter(holds).collect();
        let at = position % holders.len().max(1);
        holders.get(at).copied().unwrap_or_else(|| self.worker(position))
    }

    /// An instance as the history names it: by the order of the inserts.
    fn name(&self, id: InstanceId) -> String {
        match self.instances.iter().position(|known| *known == id) {
            Some(position) => format!("#{position}"),
            None => format!("an instance that was never inserted ({id})"),
        }
    }

    async fn insert(&mut self, entries: &[Entry]) -> Result<String, StoreError> {
        let entries: Result<_, StoreError> = entries.iter().map(new_instance).collect();
        let inserted = self.store.insert(entries?).await?;
        let new = inserted.iter().filter(|one| !one.is_duplicate());
        self.instances.extend(new.map(|one| one.id()));
        let said = inserted.into_iter().map(|one| match one {
            Inserted::New(id) => format!("new {}", self.name(id)),
            Inserted::Duplicate(id) => format!("duplicate of {}", self.name(id)),
        });
        Ok(said.collect::<Vec<_>>().join(", "))
    }

    async fn claim(
        &mut self,
        worker: usize,
        queue: usize,
        machines: &[usize],
        limit: usize,
    ) -> Result<String, StoreError> {
        self.last_claim += 1;
        let request = ClaimRequest {
            worker: self.workers[worker].id,
            number: ClaimNumber::new(self.last_claim),
            queue: queue_name(queue)?,
            machines: machine_keys(machines)?,
            limit,
        };
        let number = request.number;
        let claimed = self.store.claim(request).await?;
        let mut said = match claimed.next_due {
            None => "claimed, nothing due later".to_owned(),
            Some(Duration::ZERO) => "claimed, due now".to_owned(),
            Some(_) => "claimed, some due later".to_owned(),
        };
        if !claimed.instances.is_empty() {
            self.claims.push((worker, number));
        }
        for one in claimed.instances {
            self.fences.push(Given {
                worker,
                id: one.id,
                fence: one.fence,
                parent: one.coordination.parent,
                received: one.coordination.received,
                open: true,
            });
            let name = self.name(one.id);
            let coordination = self.told_coordination(&one.coordination);
            let (step, state) = (one.step, value(&one.state));
            let (machine, attempt, crashes, visit) = (one.machine, one.attempt, one.crashes, one.visit);
            let _ = write!(
                said,
                "\n{name} machine {machine}, {step} {state}, attempt {attempt}, crashes {crashes}, visit {visit}\
                 {coordination}"
            );
        }
        Ok(said)
    }

    async fn register(&mut self, ended: bool) -> Result<String, StoreError> {
        let worker = NewWorker {
            name: "history".to_owned(),
            lease: if ended { Duration::ZERO } else { HOUR },
            process: None,
            roles: durable_core::store::Roles::ALL,
        };
        let id = self.store.register(worker).await?;
        self.workers.push(Worker { id, lost: ended });
        Ok("ok".to_owned())
    }

    async fn beat(&mut self, worker: usize) -> Result<String, StoreError> {
        match self.heart.beat(self.workers[worker].id, HOUR).await? {
            Beat::Dead => Ok("dead".to_owned()),
            Beat::Alive {
                mut claims,
                cancelled,
            } => {
                self.workers[worker].lost = false;
                claims.sort_unstable();
                let numbers: Vec<i64> = claims.iter().map(|number| number.get()).collect();
                let cancelled: Vec<String> = cancelled.into_iter().map(|id| self.name(id)).collect();
                let must_end = if cancelled.is_empty() { "" } else { ", must end " };
                Ok(format!(
                    "alive with claims {numbers:?}{must_end}{}",
                    cancelled.join(" ")
                ))
            }
        }
    }

    async fn reap(&mut self, limit: usize) -> Result<String, StoreError> {
        let (mut workers, mut instances) = (0, 0);
        for _ in 0..MOST_ROUNDS {
            let round = self.store.reap(limit).await?;
            workers += round.workers;
            instances += round.instances;
            if !round.more {
                for given in &mut self.fences {
                    given.open &= !self.workers[given.worker].lost;
                }
                return Ok(format!("{workers} declared dead, {instances} instances returned"));
            }
        }
        Ok("says more for ever".to_owned())
    }

    async fn collect(&mut self, retention: Retention, limit: usize) -> Result<String, StoreError> {
        let mut instances = 0;
        for _ in 0..MOST_ROUNDS {
            let round = self.store.collect(retention, limit).await?;
            instances += round.instances;
            if !round.more {
                return Ok(format!("{instances} removed"));
            }
        }
        Ok("says more for ever".to_owned())
    }
}
