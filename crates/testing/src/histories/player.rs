//! Plays a history on one store, and says its answers in words that do not depend on the ids it gave.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Beat, ClaimRequest, Commit, Heart, Inserted, NewWorker, Retention, Snapshot};
use durable_core::{ClaimNumber, Fence, InstanceId, Status, Store, StoreError, WorkerId};

use super::call::{Call, Entry, Outcome, Pick};
use super::vocabulary::{HOUR, correlation_key, machine_keys, new_instance, queue_name, transition, value};

/// More rounds of a reaper or collector than any history needs.
const MOST_ROUNDS: usize = 1000;
/// Far from any number that a history uses.
const UNCLAIMED: ClaimNumber = ClaimNumber::new(1_000_000);

/// One store under play, and what it has said so far.
pub(super) struct Player {
    store: Arc<dyn Store>,
    heart: Box<dyn Heart>,
    workers: Vec<Worker>,
    /// In the order of the inserts.
    instances: Vec<InstanceId>,
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
                open: true,
            });
            let name = self.name(one.id);
            let (step, state) = (one.step, value(&one.state));
            let (machine, attempt, crashes) = (one.machine, one.attempt, one.crashes);
            let _ = write!(
                said,
                "\n{name} machine {machine}, {step} {state}, attempt {attempt}, crashes {crashes}"
            );
        }
        Ok(said)
    }

    /// The position of the fence, and the fence as it is shown to the store; nothing when there is none yet.
    fn pick(&self, worker: usize, pick: Pick) -> Option<(usize, InstanceId, Fence)> {
        let candidates: Vec<usize> = match pick {
            Pick::Any(_) => (0..self.fences.len()).collect(),
            Pick::Own(_) => (0..self.fences.len())
                .rev()
                .filter(|at| self.fences[*at].worker == worker)
                .collect(),
            _ => (0..self.fences.len())
                .filter(|at| self.fences[*at].open && self.fences[*at].worker == worker)
                .collect(),
        };
        let (Pick::Open(position)
        | Pick::Own(position)
        | Pick::Any(position)
        | Pick::Older(position)
        | Pick::Unclaimed(position)) = pick;
        let at = *candidates.get(position % candidates.len().max(1))?;
        let Given { id, mut fence, .. } = self.fences[at];
        match pick {
            Pick::Older(_) => fence.seq -= 1,
            Pick::Unclaimed(_) => fence.claim = UNCLAIMED,
            Pick::Open(_) | Pick::Own(_) | Pick::Any(_) => {}
        }
        Some((at, id, fence))
    }

    async fn commit(
        &mut self,
        worker: usize,
        outcomes: &[Outcome],
        close: bool,
    ) -> Result<String, StoreError> {
        let picked: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| Some((self.pick(worker, outcome.pick)?, outcome.change)))
            .collect();
        let used: Vec<usize> = picked
            .iter()
            .filter(|((at, _, fence), _)| {
                let given = &self.fences[*at];
                given.worker == worker && given.fence == *fence
            })
            .map(|((at, ..), _)| *at)
            .collect();
        // Only what nothing is left of may be closed.
        let left = |number: ClaimNumber| {
            let held = |at: usize| self.fences[at].fence.claim == number && self.fences[at].open;
            (0..self.fences.len()).any(|at| held(at) && !used.contains(&at))
        };
        let closed = self.claims.iter().filter(|(owner, _)| close && *owner == worker);
        let closed: Vec<ClaimNumber> = closed.map(|it| it.1).filter(|number| !left(*number)).collect();
        let commits: Arc<[Commit]> = picked
            .iter()
            .map(|((_, id, fence), change)| Commit {
                id: *id,
                fence: *fence,
                transition: transition(*change),
            })
            .collect();
        let fates = self
            .store
            .commit(self.workers[worker].id, commits, closed)
            .await?;
        for at in used {
            self.fences[at].open = false;
        }
        let mut said = format!("{} answers", fates.len());
        for (fate, ((_, id, _), _)) in fates.iter().zip(&picked) {
            let _ = write!(said, "\n{} {fate:?}", self.name(*id));
        }
        Ok(said)
    }

    async fn resolve(&mut self, worker: usize, picks: &[Pick]) -> Result<String, StoreError> {
        let asked: Vec<(InstanceId, Fence)> = picks
            .iter()
            .filter_map(|pick| self.pick(worker, *pick).map(|(_, id, fence)| (id, fence)))
            .collect();
        let resolved = self.store.resolve(self.workers[worker].id, asked.clone()).await?;
        let mut said = format!("{} answers", resolved.len());
        for (resolution, (id, _)) in resolved.iter().zip(&asked) {
            let _ = write!(said, "\n{} {resolution:?}", self.name(*id));
        }
        Ok(said)
    }

    async fn release(&mut self, worker: usize, claims: &[usize]) -> Result<String, StoreError> {
        let mut numbers = Vec::new();
        for position in claims {
            if let Some((owner, number)) = self.claims.get(position % self.claims.len().max(1)) {
                numbers.push(*number);
                if *owner == worker {
                    for given in self.fences.iter_mut().filter(|it| it.fence.claim == *number) {
                        given.open = false;
                    }
                }
            }
        }
        self.store.release(self.workers[worker].id, numbers).await?;
        Ok("ok".to_owned())
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
            Beat::Alive { mut claims } => {
                self.workers[worker].lost = false;
                claims.sort_unstable();
                let numbers = claims.iter().map(|number| number.get());
                Ok(format!("alive with claims {:?}", numbers.collect::<Vec<_>>()))
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

    async fn snapshots(&mut self) -> Result<String, StoreError> {
        let snapshots = self.store.snapshots(self.instances.clone()).await?;
        let mut said = format!("{} instances", snapshots.len());
        for (position, snapshot) in snapshots.into_iter().enumerate() {
            let text = snapshot.map_or_else(|| "removed".to_owned(), |snapshot| told(&snapshot));
            let _ = write!(said, "\n#{position} {text}");
        }
        Ok(said)
    }
}

/// A snapshot in words, all but its id; of its time only whether it has come.
fn told(snapshot: &Snapshot) -> String {
    let Snapshot {
        machine,
        queue,
        status,
        step,
        attempt,
        crashes,
        ..
    } = snapshot;
    let mut said = format!(
        "{status}, {machine} in {queue}, {step} {}",
        value(&snapshot.state)
    );
    let _ = write!(said, ", attempt {attempt}, crashes {crashes}");
    if *status == Status::Runnable && snapshot.due_in > Duration::ZERO {
        said.push_str(", later");
    }
    if let Some(result) = &snapshot.result {
        let _ = write!(said, ", result {}", value(result));
    }
    if let Some(failure) = &snapshot.failure {
        let _ = write!(said, ", failure {:?} {failure}", failure.kind);
    }
    if let Some(key) = &snapshot.correlation_key {
        let _ = write!(said, ", holds {key}");
    }
    said
}
