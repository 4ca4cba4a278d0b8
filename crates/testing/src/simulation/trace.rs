//! What took effect, in order: the run itself, as text and as one number.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use durable_core::{ClaimNumber, InstanceId, WorkerId};
use tokio::sync::Notify;

use crate::memory::{Call, Seen, Standing, Witness};

/// How many of the last effects are kept to be shown.
const SHOWN: usize = 60;
/// How much of an effect is shown.
const WIDTH: usize = 400;

/// Sees every effect on the store, and checks what must always hold.
#[derive(Clone, Default)]
pub(super) struct Trace(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inside: Mutex<Inside>,
    violated: Notify,
}

#[derive(Default)]
struct Inside {
    hasher: DefaultHasher,
    effects: u64,
    last: VecDeque<String>,
    line: String,
    aloud: bool,
    seen: BTreeMap<InstanceId, Standing>,
    /// The claim that last held each instance, and how many have.
    grants: BTreeMap<InstanceId, ((WorkerId, ClaimNumber), u64)>,
    violation: Option<String>,
}

impl Trace {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints every effect.
    pub(super) fn aloud(&self) {
        self.lock().aloud = true;
    }

    /// Adds what happened to a process.
    pub(super) fn note(&self, now: Duration, what: &str) {
        let mut inside = self.lock();
        inside.line.clear();
        let _ = write!(inside.line, "{now:>12.3?}  {what}");
        inside.end_line();
    }

    /// One number for all that happened so far, and how many effects there were.
    pub(super) fn sum(&self) -> (u64, u64) {
        let inside = self.lock();
        (inside.hasher.finish(), inside.effects)
    }

    /// How often an instance was given to a worker.
    pub(super) fn grants(&self, id: InstanceId) -> u64 {
        self.lock().grants.get(&id).map_or(0, |(_, grants)| *grants)
    }

    /// The last effects.
    pub(super) fn last(&self) -> String {
        let lines: Vec<_> = self.lock().last.iter().cloned().collect();
        lines.join("\n")
    }

    pub(super) fn violate(&self, what: String) {
        self.lock().violation.get_or_insert(what);
        self.0.violated.notify_waiters();
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// The first thing that must not be, once there is one.
    pub(super) async fn violated(&self) -> String {
        loop {
            let violated = self.0.violated.notified();
            if let Some(what) = self.violation() {
                return what;
            }
            violated.await;
        }
    }
}

impl Inside {
    fn end_line(&mut self) {
        self.hasher.write(self.line.as_bytes());
        self.hasher.write_u8(b'\n');
        if self.aloud {
            eprintln!("{}", shown(&self.line));
        }
        // The oldest line gives its memory to the next.
        let next = match self.last.len() {
            SHOWN.. => self.last.pop_front().unwrap_or_default(),
            _ => String::new(),
        };
        let line = std::mem::replace(&mut self.line, next);
        self.last.push_back(line);
    }

    /// An end is an end, save for a restart; no step is undone, and none is skipped.
    fn history_fault(&mut self, seen: &Seen<'_>) -> Option<String> {
        for (id, standing) in seen.state.standings() {
            let before = self.seen.insert(id, standing);
            let Some(before) = before else { continue };
            if before.terminal && !standing.terminal && seen.call != Call::Operate {
                return Some(format!("instance {id} was terminal, and is not any more"));
            }
            if standing.visit != before.visit && standing.visit != before.visit + 1 {
                return Some(format!(
                    "instance {id} went from visit {} to {}",
                    before.visit, standing.visit
                ));
            }
        }
        for (id, of) in seen.state.holds() {
            let (last, grants) = self.grants.entry(id).or_insert((of, 0));
            if *grants == 0 || *last != of {
                (*last, *grants) = (of, *grants + 1);
            }
        }
        None
    }
}

/// As much of a line as somebody can read.
fn shown(line: &str) -> &str {
    let end = line.char_indices().nth(WIDTH).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

impl Witness for Trace {
    fn saw(&mut self, seen: &Seen<'_>) {
        let mut inside = self.lock();
        inside.effects += 1;
        inside.line.clear();
        let (now, process, call) = (seen.now, seen.process, seen.call);
        let _ = write!(
            inside.line,
            "{now:>12.3?}  process {process}: {call:?} {:?}",
            seen.asked
        );
        // The neighbours of a process are processes of this machine, which no seed decides.
        if call != Call::Neighbours {
            let _ = write!(inside.line, " -> {:?}", seen.answer);
        }
        if seen.lost {
            inside.line.push_str(" (the answer is lost)");
        }
        inside.end_line();
        if inside.violation.is_none()
            && let Some(fault) = seen.state.fault().or_else(|| inside.history_fault(seen))
        {
            inside.violation = Some(fault);
            self.0.violated.notify_waiters();
        }
    }
}
