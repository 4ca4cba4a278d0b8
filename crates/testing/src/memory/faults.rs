//! The fault seam of the model: what a test may make go wrong, call by call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use durable_core::store::{Commit, NewInstance, NewSignal, Operation, Transition};
use durable_core::{InstanceId, Json};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::Shared;

/// The kinds of calls of a store, one per method, and the heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each is named after the method of Store or Heart that it stands for"
)]
pub enum Call {
    Insert,
    Register,
    Retire,
    DeclareDead,
    Neighbours,
    Claim,
    Commit,
    Deliver,
    Operate,
    UnfinishedChildren,
    Expire,
    Resolve,
    Release,
    Reap,
    Collect,
    Snapshots,
    Settlements,
    Survey,
    Meet,
    Part,
    RenewSecret,
    Find,
    BringBack,
    DueKeys,
    SetLimit,
    RemoveLimit,
    Limits,
    PauseKey,
    Keys,
    ForgetKeys,
    /// [`make_due`](durable_core::Store::make_due).
    MakeDue,
    Beat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It has no effect, and says so.
    Transient,
    /// It takes effect, and its answer is lost.
    LostAnswer,
    /// It has no effect, which nobody can tell from a lost answer.
    LostCall,
}

type Refusal<T> = Box<dyn Fn(&T) -> bool + Send>;

#[derive(Default)]
pub(super) struct FaultState {
    next: BTreeMap<Call, VecDeque<Fault>>,
    counts: BTreeMap<Call, u64>,
    held: BTreeMap<Call, Arc<Notify>>,
    locked: BTreeSet<InstanceId>,
    insert_refusal: Option<Refusal<NewInstance>>,
    commit_refusal: Option<Refusal<Commit>>,
}

impl FaultState {
    /// Counts a call.
    pub(super) fn count(&mut self, call: Call) {
        *self.counts.entry(call).or_default() += 1;
    }

    /// Takes the fault that waits for a call.
    pub(super) fn take(&mut self, call: Call) -> Option<Fault> {
        self.next.get_mut(&call)?.pop_front()
    }

    /// What a call of this kind must wait for before it is looked at again; `None` lets it through.
    pub(super) fn held(&self, call: Call) -> Option<OwnedNotified> {
        self.held
            .get(&call)
            .map(|notify| Arc::clone(notify).notified_owned())
    }

    pub(super) fn locked(&self) -> &BTreeSet<InstanceId> {
        &self.locked
    }

    pub(super) fn refuses_insert(&self, entry: &NewInstance) -> bool {
        !storable_text(&entry.step)
            || !storable_json(&entry.state)
            || self.insert_refusal.as_ref().is_some_and(|refuses| refuses(entry))
    }

    pub(super) fn refuses_commit(&self, commit: &Commit) -> bool {
        let children: &[NewInstance] = match &commit.transition {
            Transition::ScheduleChildren { children, .. } => children,
            _ => &[],
        };
        !storable(&commit.transition)
            || children.iter().any(|child| self.refuses_insert(child))
            || self
                .commit_refusal
                .as_ref()
                .is_some_and(|refuses| refuses(commit))
    }
}

pub(super) fn refuses_signal(signal: &NewSignal) -> bool {
    !storable_json(&signal.payload)
}

pub(super) fn refuses_operation(operation: &Operation) -> bool {
    matches!(operation, Operation::Cancel { failure } if !storable_text(&failure.message))
}

/// Whether the store can keep all that an outcome writes into its own row.
fn storable(transition: &Transition) -> bool {
    match transition {
        Transition::Next { step, state, .. }
        | Transition::Ahead { step, state }
        | Transition::Await { step, state, .. }
        | Transition::ScheduleChildren { step, state, .. } => storable_text(step) && storable_json(state),
        Transition::Retry { state, failure, .. } => {
            state.as_ref().is_none_or(storable_json)
                && failure.as_ref().is_none_or(|it| storable_text(&it.message))
        }
        Transition::Done { result } => storable_json(result),
        Transition::Failed { failure } | Transition::Cancelled { failure } => storable_text(&failure.message),
        _ => true,
    }
}

/// Postgres keeps no NUL character.
fn storable_text(text: &str) -> bool {
    !text.contains('\0')
}

/// The text must be JSON, without a NUL character in any of its strings.
fn storable_json(json: &Json) -> bool {
    fn without_nul(value: &Value) -> bool {
        match value {
            Value::String(text) => storable_text(text),
            Value::Array(values) => values.iter().all(without_nul),
            Value::Object(fields) => fields
                .iter()
                .all(|(name, value)| storable_text(name) && without_nul(value)),
            _ => true,
        }
    }
    json.decode().is_ok_and(|value| without_nul(&value))
}

/// What a test may make go wrong in a [`MemoryStore`](super::MemoryStore); see
/// [`faults`](super::MemoryStore::faults). Faults of one kind of call queue up, one per call.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

impl Faults {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The next call of this kind does nothing and fails as transient.
    pub fn fail_next(&self, call: Call) {
        self.push(call, Fault::Transient);
    }

    /// The next call of this kind takes effect, and its answer is lost (`StoreError::Unknown`).
    pub fn lose_next_answer(&self, call: Call) {
        self.push(call, Fault::LostAnswer);
    }

    /// The next call of this kind never arrives, which its caller cannot tell from a lost answer
    /// (`StoreError::Unknown`).
    pub fn lose_next_call(&self, call: Call) {
        self.push(call, Fault::LostCall);
    }

    /// Calls of this kind hang from now on, before they take effect, until [`let_go`](Self::let_go).
    pub fn hold(&self, call: Call) {
        self.shared.lock().faults.held.entry(call).or_default();
    }

    /// Calls of this kind that hang go on.
    pub fn let_go(&self, call: Call) {
        if let Some(notify) = self.shared.lock().faults.held.remove(&call) {
            notify.notify_waiters();
        }
    }

    /// Every insert that holds an entry for which this is true is refused whole, from now on, and every commit that
    /// schedules such a child. The predicate runs under the store's lock and must not call the store.
    pub fn refuse_inserts(&self, refuses: impl Fn(&NewInstance) -> bool + Send + 'static) {
        self.shared.lock().faults.insert_refusal = Some(Box::new(refuses));
    }

    /// Every commit that holds an outcome for which this is true is refused whole, from now on. The predicate
    /// runs under the store's lock and must not call the store.
    pub fn refuse_commits(&self, refuses: impl Fn(&Commit) -> bool + Send + 'static) {
        self.shared.lock().faults.commit_refusal = Some(Box::new(refuses));
    }

    /// Holds the instance's row as another transaction would: its outcomes, and the ends of its children, answer
    /// `CommitFate::Locked`; claims, releases, deadlines, reaper and collector skip it; what waits for rows, as a
    /// delivery or an operation does, fails as transient.
    pub fn lock(&self, id: InstanceId) {
        self.shared.lock().faults.locked.insert(id);
    }

    /// Lets the row go.
    pub fn unlock(&self, id: InstanceId) {
        self.shared.lock().faults.locked.remove(&id);
    }

    /// Whether any row is held.
    pub(crate) fn holds_any(&self) -> bool {
        !self.shared.lock().faults.locked.is_empty()
    }

    /// No more faults: nothing waits, hangs, refuses, or is locked.
    pub fn clear(&self) {
        let faults = &mut self.shared.lock().faults;
        for notify in faults.held.values() {
            notify.notify_waiters();
        }
        *faults = FaultState {
            counts: std::mem::take(&mut faults.counts),
            ..FaultState::default()
        };
    }

    /// How many calls of this kind have arrived, those that failed or hang included.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.shared.lock().faults.counts.get(&call).copied().unwrap_or(0)
    }

    fn push(&self, call: Call, fault: Fault) {
        self.shared
            .lock()
            .faults
            .next
            .entry(call)
            .or_default()
            .push_back(fault);
    }
}
