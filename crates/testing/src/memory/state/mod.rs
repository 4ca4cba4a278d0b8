//! The state of the model and its rules, without locks, waiting or faults; one file per family of calls. `now` is the
//! time since the store was made.

mod claim;
mod collection;
mod commit;
mod insert;
mod limits;
mod members;
mod operations;
mod outcome;
mod reading;
mod recovery;
mod signals;
mod whole;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use durable_core::store::{LimitKey, Limits, Roles, Signal};
use durable_core::{
    ClaimNumber, CorrelationKey, DeduplicationKey, Failure, InstanceId, Json, LimitKind, MachineKey,
    ProcessIdentity, QueueName, Scope, SignalName, Status, WorkerId,
};

use limits::{Configured, KeyRow};

/// Rows that another transaction holds.
pub(super) type Locked = BTreeSet<InstanceId>;

/// Queues in which instances were woken.
type Woken = BTreeSet<QueueName>;

/// The instances of one open claim.
type Claim = BTreeMap<InstanceId, Held>;

pub(crate) struct State {
    /// When the store was made, by the wall clock.
    began: SystemTime,
    instances: BTreeMap<InstanceId, Row>,
    /// Who holds each correlation key.
    keys: BTreeMap<CorrelationKey, InstanceId>,
    workers: BTreeMap<WorkerId, Worker>,
    /// The open claims. One stays open until its worker closes or releases it, or the reaper takes it.
    claims: BTreeMap<(WorkerId, ClaimNumber), Claim>,
    /// Keys of limits that are held, waited for, or paused.
    limit_keys: BTreeMap<LimitKey, KeyRow>,
    configured: Configured,
    last_instance: i64,
    last_worker: i64,
    pub(in crate::memory) members: members::Members,
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
    /// How often it has gone on to a step before.
    visit: u32,
    /// The fencing number: 0 at insert, + 1 whenever a claim of the instance ends, and whenever it is woken.
    seq: i32,
    result: Option<Json>,
    failure: Option<Failure>,
    /// The business identity, until the instance leaves the scope for the first time.
    correlation: Option<(CorrelationKey, Scope)>,
    /// The business identity that it was inserted with: what a restart takes again.
    known_key: Option<(CorrelationKey, Scope)>,
    /// When it became terminal.
    finished: Duration,
    /// How many signals it has ever received: the number of the last one.
    received: u32,
    /// In the order of their numbers.
    inbox: Vec<Signal>,
    /// The deduplication keys of all signals that it has received, consumed ones too.
    used: BTreeSet<DeduplicationKey>,
    /// The names that the last wait was for.
    awaited: Vec<SignalName>,
    /// When its wait ends by itself; only while it is parked.
    deadline: Option<Duration>,
    deadline_fired: bool,
    /// The parent, and which of its fan-outs this child belongs to.
    parent: Option<(InstanceId, u32)>,
    /// How many fan-outs it has made.
    fan_out: u32,
    /// How many children must still end before it wakes; only while it waits for children.
    left: u32,
    /// Whether the step sees the children of the last fan-out.
    children_visible: bool,
    /// Whether it was counted towards its parent's join.
    joined: bool,
    /// Whether the collector has left it for its parent: it goes after the parent.
    kept: bool,
    /// Why it must end cancelled, as soon as its step has ended.
    cancellation: Option<Failure>,
    /// What holds its next step back.
    limits: Limits,
    /// Which of its limits it waits for; only while it is runnable.
    waits_for: Option<LimitKind>,
    /// Whether it was brought back: it does not queue up behind the others of its key again.
    recalled: bool,
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

impl Row {
    const fn is_parked(&self) -> bool {
        matches!(self.status, Status::AwaitingSignal | Status::AwaitingChildren)
    }

    /// Whatever was claimed or waited for with the old number is over.
    const fn renumber(&mut self) {
        self.seq = self.seq.wrapping_add(1);
    }
}

impl State {
    pub(super) fn new(began: SystemTime) -> Self {
        Self {
            began,
            instances: BTreeMap::new(),
            keys: BTreeMap::new(),
            workers: BTreeMap::new(),
            claims: BTreeMap::new(),
            limit_keys: BTreeMap::new(),
            configured: Configured::default(),
            last_instance: 0,
            last_worker: 0,
            members: members::Members::default(),
        }
    }

    /// Puts the instance into a status. The key of one that leaves its scope is free, and only a restart takes it
    /// again (rule ID-2).
    fn enter(&mut self, id: InstanceId, status: Status) {
        let Some(row) = self.instances.get_mut(&id) else {
            return;
        };
        row.status = status;
        (row.waits_for, row.recalled) = (None, false);
        if let Some((key, _)) = row.correlation.take_if(|(_, scope)| !scope.contains(status)) {
            let holder = self.keys.remove(&key);
            debug_assert_eq!(holder, Some(id), "a key is held by the row that says so");
        }
    }

    /// Ends the wait of a parked instance.
    fn wake(&mut self, now: Duration, id: InstanceId, fired: bool, woken: &mut Woken) {
        let Some(row) = self.instances.get_mut(&id) else {
            return;
        };
        row.renumber();
        row.eligible = now;
        (row.deadline, row.deadline_fired) = (None, fired);
        woken.insert(row.queue.clone());
        self.enter(id, Status::Runnable);
    }

    fn claims_of(&self, worker: WorkerId) -> Vec<ClaimNumber> {
        self.claims
            .keys()
            .filter(|(owner, _)| *owner == worker)
            .map(|it| it.1)
            .collect()
    }
}
