//! The state of the model and its rules, without locks, waiting or faults. `now` is the time since the store
//! was made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use durable_core::store::{
    Beat, ClaimRequest, Claimed, ClaimedInstance, Collected, Commit, CommitFate, Eligible, Inserted,
    NewInstance, NewWorker, Reaped, Resolution, Retention, Roles, Snapshot, Survey, Transition,
};
use durable_core::{
    ClaimNumber, CorrelationKey, Failure, Fence, InstanceId, Json, MachineKey, ProcessIdentity, QueueName,
    Scope, Status, StoreError, WorkerId,
};

/// Rows that another transaction holds.
pub(super) type Locked = BTreeSet<InstanceId>;

#[derive(Default)]
pub(super) struct State {
    instances: BTreeMap<InstanceId, Row>,
    /// Who holds each correlation key.
    keys: BTreeMap<CorrelationKey, InstanceId>,
    workers: BTreeMap<WorkerId, Worker>,
    /// The open claims. One stays open until its worker closes or releases it, or the reaper takes it.
    claims: BTreeMap<(WorkerId, ClaimNumber), BTreeMap<InstanceId, Held>>,
    last_instance: i64,
    last_worker: i64,
}

struct Row {
    machine: MachineKey,
    queue: QueueName,
    priority: i16,
    eligible: Duration,
    status: Status,
    step: String,
    state: Json,
    attempt: u32,
    crashes: u32,
    /// The fencing number: 0 at insert, + 1 whenever a claim of the instance ends.
    seq: i32,
    result: Option<Json>,
    failure: Option<Failure>,
    /// The business identity, until the instance leaves the scope for the first time.
    correlation: Option<(CorrelationKey, Scope)>,
    /// When it became terminal.
    finished: Duration,
}

/// One instance of an open claim.
struct Held {
    seq: i32,
    committed: bool,
}

struct Worker {
    lease_end: Duration,
    dead: bool,
    process: Option<ProcessIdentity>,
    roles: Roles,
}

impl State {
    pub(super) fn insert(&mut self, now: Duration, entries: Vec<NewInstance>) -> Vec<Inserted> {
        entries
            .into_iter()
            .map(|entry| self.insert_one(now, entry))
            .collect()
    }

    fn insert_one(&mut self, now: Duration, entry: NewInstance) -> Inserted {
        let key = entry.correlation.as_ref().map(|(key, _)| key);
        if let Some(holder) = key.and_then(|key| self.keys.get(key)) {
            return Inserted::Duplicate(*holder);
        }
        self.last_instance += 1;
        let id = InstanceId::new(self.last_instance);
        if let Some(key) = key {
            self.keys.insert(key.clone(), id);
        }
        let delay = match entry.eligible {
            Eligible::In(delay) => delay,
            Eligible::At(instant) => instant
                .duration_since(SystemTime::now())
                .unwrap_or(Duration::ZERO),
        };
        let row = Row {
            machine: entry.machine,
            queue: entry.queue,
            priority: entry.priority,
            eligible: now.saturating_add(delay),
            status: Status::Runnable,
            step: entry.step,
            state: entry.state,
            attempt: 0,
            crashes: 0,
            seq: 0,
            result: None,
            failure: None,
            correlation: entry.correlation,
            finished: Duration::ZERO,
        };
        self.instances.insert(id, row);
        Inserted::New(id)
    }

    pub(super) fn register(&mut self, now: Duration, worker: NewWorker) -> WorkerId {
        self.last_worker += 1;
        let id = WorkerId::new(self.last_worker);
        let lease_end = now.saturating_add(worker.lease);
        self.workers.insert(
            id,
            Worker {
                lease_end,
                dead: false,
                process: worker.process,
                roles: worker.roles,
            },
        );
        id
    }

    pub(super) fn survey(&self, now: Duration, queues: &[QueueName], machines: &[MachineKey]) -> Survey {
        let alive = || {
            self.workers
                .values()
                .filter(|row| !row.dead && row.lease_end > now)
        };
        let ready = |row: &&Row| row.status == Status::Runnable && row.eligible <= now;
        let unknown: BTreeSet<_> = self
            .instances
            .values()
            .filter(ready)
            .filter(|row| queues.contains(&row.queue) && !machines.contains(&row.machine))
            .map(|row| (row.queue.clone(), row.machine.clone()))
            .collect();
        Survey {
            reaper: alive().any(|row| row.roles.reaper),
            collector: alive().any(|row| row.roles.collector),
            unknown: unknown.into_iter().collect(),
        }
    }

    pub(super) fn beat(&mut self, now: Duration, worker: WorkerId, lease: Duration) -> Beat {
        match self.workers.get_mut(&worker) {
            Some(row) if !row.dead => row.lease_end = now.saturating_add(lease),
            _ => return Beat::Dead,
        }
        Beat::Alive {
            claims: self.claims_of(worker),
        }
    }

    pub(super) fn retire(&mut self, worker: WorkerId) {
        if self.claims_of(worker).is_empty() {
            self.workers.remove(&worker);
        }
    }

    pub(super) fn declare_dead(&mut self, workers: &[WorkerId]) {
        for worker in workers {
            if let Some(row) = self.workers.get_mut(worker) {
                row.dead = true;
            }
        }
    }

    pub(super) fn neighbours(&self, process: &ProcessIdentity) -> Vec<(WorkerId, ProcessIdentity)> {
        let live = self.workers.iter().filter(|(_, row)| !row.dead);
        live.filter_map(|(id, row)| Some((*id, row.process.clone()?)))
            .filter(|(_, other)| process.shares_process_table(other))
            .collect()
    }

    pub(super) fn claim(
        &mut self,
        now: Duration,
        request: &ClaimRequest,
        locked: &Locked,
    ) -> Result<Claimed, StoreError> {
        if self.workers.get(&request.worker).is_none_or(|row| row.dead) {
            return Err(StoreError::WorkerDead);
        }
        if self.claims.contains_key(&(request.worker, request.number)) {
            let message = format!("claim {:?} of worker {} is open", request.number, request.worker);
            return Err(StoreError::Fatal { message });
        }
        let known = |row: &Row| {
            request
                .machines
                .iter()
                .position(|machine| *machine == row.machine)
        };
        let candidates = || {
            let queued = self
                .instances
                .iter()
                .filter(|(_, row)| row.queue == request.queue);
            queued.filter(|(_, row)| row.status == Status::Runnable && known(row).is_some())
        };
        let next_due = candidates()
            .map(|(_, row)| row.eligible)
            .filter(|due| *due > now)
            .min();
        let mut due: Vec<_> = candidates()
            .filter(|(id, row)| row.eligible <= now && !locked.contains(id))
            .map(|(id, row)| (row.priority, row.eligible, *id))
            .collect();
        due.sort_unstable();
        due.truncate(request.limit);

        let mut claimed = Claimed {
            instances: Vec::new(),
            next_due: next_due.map(|due| due - now),
        };
        for (_, _, id) in due {
            let Some(row) = self.instances.get_mut(&id) else {
                continue;
            };
            let Some(machine) = known(row) else { continue };
            enter(&mut self.keys, id, row, Status::Executing);
            let held = Held {
                seq: row.seq,
                committed: false,
            };
            self.claims
                .entry((request.worker, request.number))
                .or_default()
                .insert(id, held);
            claimed.instances.push(ClaimedInstance {
                id,
                fence: Fence {
                    claim: request.number,
                    seq: row.seq,
                },
                machine,
                step: row.step.clone(),
                state: row.state.clone(),
                attempt: row.attempt,
                crashes: row.crashes,
            });
        }
        Ok(claimed)
    }

    pub(super) fn make_due(&mut self, now: Duration, queue: &QueueName, machines: &[MachineKey]) -> u64 {
        let waiting = self.instances.values_mut().filter(|row| {
            row.queue == *queue
                && machines.contains(&row.machine)
                && row.status == Status::Runnable
                && row.eligible > now
        });
        waiting.map(|row| row.eligible = now).count() as u64
    }

    pub(super) fn commit(
        &mut self,
        now: Duration,
        worker: WorkerId,
        outcomes: &[Commit],
        closed: &[ClaimNumber],
        locked: &Locked,
    ) -> Result<Vec<CommitFate>, StoreError> {
        let ending = |id: &InstanceId| outcomes.iter().any(|it| it.id == *id);
        for number in closed {
            let Some(claim) = self.claims.get(&(worker, *number)) else {
                continue;
            };
            if let Some((id, _)) = claim.iter().find(|(id, held)| !held.committed && !ending(id)) {
                let message = format!("claim {number:?} is closed while it still holds instance {id}");
                return Err(StoreError::Fatal { message });
            }
        }
        let fates = outcomes
            .iter()
            .map(|commit| self.commit_one(now, worker, commit, locked))
            .collect();
        // A claim with an outcome that was set aside is kept, for when it is committed again (rule OUT-6).
        let over = |claim: &BTreeMap<InstanceId, Held>| claim.values().all(|held| held.committed);
        for number in closed {
            if self.claims.get(&(worker, *number)).is_some_and(over) {
                self.claims.remove(&(worker, *number));
            }
        }
        Ok(fates)
    }

    fn commit_one(
        &mut self,
        now: Duration,
        worker: WorkerId,
        commit: &Commit,
        locked: &Locked,
    ) -> CommitFate {
        let claim = self.claims.get_mut(&(worker, commit.fence.claim));
        let Some(held) = claim.and_then(|claim| claim.get_mut(&commit.id)) else {
            return CommitFate::Stale;
        };
        if held.committed || held.seq != commit.fence.seq {
            return CommitFate::Stale;
        }
        if locked.contains(&commit.id) {
            return CommitFate::Locked;
        }
        let Some(row) = self.instances.get_mut(&commit.id) else {
            return CommitFate::Stale;
        };
        held.committed = true;
        row.seq = row.seq.wrapping_add(1);
        let status = apply(row, now, &commit.transition);
        enter(&mut self.keys, commit.id, row, status);
        CommitFate::Committed
    }

    pub(super) fn resolve(&self, worker: WorkerId, id: InstanceId, fence: Fence) -> Resolution {
        match self
            .claims
            .get(&(worker, fence.claim))
            .and_then(|claim| claim.get(&id))
        {
            Some(held) if held.seq != fence.seq => Resolution::Lost,
            Some(held) if held.committed => Resolution::Committed,
            Some(_) => Resolution::NotCommitted,
            None => Resolution::Lost,
        }
    }

    /// What another transaction holds stays behind in its claim, for the next time.
    pub(super) fn release(&mut self, worker: WorkerId, number: ClaimNumber, locked: &Locked) {
        let claim = self.claims.remove(&(worker, number)).unwrap_or_default();
        let left = claim.into_iter().filter(|(_, held)| !held.committed);
        let (behind, free): (BTreeMap<_, _>, _) = left.partition(|(id, _)| locked.contains(id));
        if !behind.is_empty() {
            self.claims.insert((worker, number), behind);
        }
        for id in free.into_keys() {
            self.give_back(id);
        }
    }

    /// Back to runnable, as it was, under a new fencing number.
    fn give_back(&mut self, id: InstanceId) -> Option<&mut Row> {
        let row = self.instances.get_mut(&id)?;
        row.seq = row.seq.wrapping_add(1);
        enter(&mut self.keys, id, row, Status::Runnable);
        Some(row)
    }

    pub(super) fn reap(&mut self, now: Duration, limit: usize, locked: &Locked) -> Reaped {
        let mut reaped = Reaped::default();
        for row in self
            .workers
            .values_mut()
            .filter(|row| !row.dead && row.lease_end <= now)
        {
            row.dead = true;
            reaped.workers += 1;
        }
        let dead: BTreeSet<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, row)| row.dead)
            .map(|(id, _)| *id)
            .collect();

        let mut lost: Vec<(InstanceId, (WorkerId, ClaimNumber))> = Vec::new();
        for (key, claim) in self.claims.iter().filter(|(key, _)| dead.contains(&key.0)) {
            let held = claim
                .iter()
                .filter(|(id, held)| !held.committed && !locked.contains(id));
            lost.extend(held.map(|(id, _)| (*id, *key)));
        }
        lost.sort_unstable();
        reaped.more = lost.len() > limit;
        lost.truncate(limit);
        for (id, key) in lost {
            if let Some(claim) = self.claims.get_mut(&key) {
                claim.remove(&id);
            }
            if let Some(row) = self.give_back(id) {
                row.attempt = row.attempt.saturating_add(1);
                row.crashes = row.crashes.saturating_add(1);
            }
            reaped.instances += 1;
        }
        self.claims.retain(|(worker, _), claim| {
            !dead.contains(worker) || claim.values().any(|held| !held.committed)
        });
        for worker in dead {
            self.retire(worker);
        }
        reaped
    }

    pub(super) fn collect(
        &mut self,
        now: Duration,
        retention: Retention,
        limit: usize,
        locked: &Locked,
    ) -> Collected {
        let kept = |status| match status {
            Status::Done => Some(retention.done),
            Status::Failed => Some(retention.failed),
            Status::Cancelled => Some(retention.cancelled),
            _ => None,
        };
        let expired = |row: &Row| kept(row.status).is_some_and(|kept| now - row.finished >= kept);
        let rows = self
            .instances
            .iter()
            .filter(|(id, row)| expired(row) && !locked.contains(id));
        let mut gone: Vec<InstanceId> = rows.map(|(id, _)| *id).collect();
        let more = gone.len() > limit;
        gone.truncate(limit);
        let mut collected = Collected { instances: 0, more };
        for id in gone {
            if let Some((key, _)) = self.instances.remove(&id).and_then(|row| row.correlation) {
                self.keys.remove(&key);
            }
            collected.instances += 1;
        }
        collected
    }

    pub(super) fn snapshot(&self, now: Duration, id: InstanceId) -> Option<Snapshot> {
        let row = self.instances.get(&id)?;
        Some(Snapshot {
            id,
            machine: row.machine.clone(),
            queue: row.queue.clone(),
            status: row.status,
            step: row.step.clone(),
            state: row.state.clone(),
            attempt: row.attempt,
            crashes: row.crashes,
            result: row.result.clone(),
            failure: row.failure.clone(),
            correlation_key: row.correlation.as_ref().map(|(key, _)| key.clone()),
            due_in: row.eligible.saturating_sub(now),
        })
    }

    pub(super) fn find(&self, key: &CorrelationKey) -> Option<InstanceId> {
        self.keys.get(key).copied()
    }

    fn claims_of(&self, worker: WorkerId) -> Vec<ClaimNumber> {
        self.claims
            .keys()
            .filter(|(owner, _)| *owner == worker)
            .map(|it| it.1)
            .collect()
    }
}

/// Puts the instance into a status. The key of one that leaves its scope is free, and never taken again by
/// the same instance (rule ID-2).
fn enter(keys: &mut BTreeMap<CorrelationKey, InstanceId>, id: InstanceId, row: &mut Row, status: Status) {
    row.status = status;
    if let Some((key, _)) = row.correlation.take_if(|(_, scope)| !scope.contains(status)) {
        let holder = keys.remove(&key);
        debug_assert_eq!(holder, Some(id), "a key is held by the row that says so");
    }
}

/// What an outcome writes, all but the status, which it answers.
fn apply(row: &mut Row, now: Duration, transition: &Transition) -> Status {
    match transition.clone() {
        Transition::Next { step, state, delay } => {
            (row.step, row.state, row.failure) = (step, state, None);
            (row.attempt, row.crashes) = (0, 0);
            row.eligible = now.saturating_add(delay);
            Status::Runnable
        }
        Transition::Retry {
            state,
            delay,
            failure,
        } => {
            row.state = state.unwrap_or_else(|| row.state.clone());
            row.failure = failure;
            (row.attempt, row.crashes) = (row.attempt.saturating_add(1), 0);
            row.eligible = now.saturating_add(delay);
            Status::Runnable
        }
        Transition::GiveBack => Status::Runnable,
        Transition::Done { result } => {
            (row.result, row.failure, row.finished) = (Some(result), None, now);
            Status::Done
        }
        Transition::Failed { failure } => {
            (row.failure, row.finished) = (Some(failure), now);
            Status::Failed
        }
        Transition::Cancelled { failure } => {
            (row.failure, row.finished) = (Some(failure), now);
            Status::Cancelled
        }
        // `Transition` is non-exhaustive outside its crate; the model must learn a new one first.
        other => unreachable!("the model does not know the outcome {other:?}"),
    }
}
