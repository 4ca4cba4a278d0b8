//! What an outcome writes into the row of its instance, and what an end does beyond it.

use std::time::Duration;

use durable_core::store::{Commit, NewInstance, Transition};
use durable_core::{Failure, InstanceId, Json, SignalName, Status};

use super::{Row, State, Woken};

/// Children that are to be inserted.
pub(super) struct FanOut {
    pub(super) parent: InstanceId,
    /// The number of the fan-out.
    pub(super) number: u32,
    pub(super) children: Vec<NewInstance>,
    pub(super) needed: Option<u32>,
}

/// How an instance ends.
pub(super) enum End {
    Done(Json),
    Failed(Failure),
    Cancelled(Failure),
}

impl Row {
    /// Removes the awaited signals that the step was given (rule OUT-4).
    fn consume(&mut self, received: u32) {
        let awaited = std::mem::take(&mut self.awaited);
        self.inbox
            .retain(|signal| signal.number > received || !awaited.contains(&signal.name));
    }

    /// Whether a wait for these names has something to see that the step was not given as awaited (rule SIG-3).
    fn has_news(&self, names: &[SignalName], received: u32) -> bool {
        self.inbox.iter().any(|signal| {
            let seen = signal.number <= received && self.awaited.contains(&signal.name);
            names.contains(&signal.name) && !seen
        })
    }

    /// Goes on to a step.
    fn progress(&mut self, now: Duration, step: String, state: Json) {
        (self.step, self.state, self.failure) = (step, state, None);
        (self.attempt, self.crashes) = (0, 0);
        self.visit = self.visit.saturating_add(1);
        (self.deadline_fired, self.children_visible) = (false, false);
        self.eligible = now;
    }
}

impl State {
    /// Writes an outcome whose claim stands; answers the children that it schedules.
    pub(super) fn write(&mut self, now: Duration, commit: &Commit, woken: &mut Woken) -> Option<FanOut> {
        let (id, received) = (commit.id, commit.received);
        let row = self.instances.get_mut(&id)?;
        row.renumber();
        if let Some(limits) = &commit.limits {
            row.limits.clone_from(limits);
        }
        let status = match commit.transition.clone() {
            Transition::Next { step, state, delay } => {
                row.consume(received);
                row.progress(now, step, state);
                row.eligible = now.saturating_add(delay);
                Status::Runnable
            }
            Transition::Ahead { step, state } => {
                row.consume(received);
                row.progress(now, step, state);
                Status::Executing
            }
            Transition::Await {
                step,
                state,
                signals,
                timeout,
            } => {
                let goes_on = row.has_news(&signals, received);
                row.progress(now, step, state);
                row.awaited = signals;
                if goes_on {
                    Status::Runnable
                } else {
                    row.deadline = timeout.map(|timeout| now.saturating_add(timeout));
                    Status::AwaitingSignal
                }
            }
            Transition::ScheduleChildren {
                step,
                state,
                children,
                needed,
                timeout,
            } => {
                row.consume(received);
                row.progress(now, step, state);
                row.fan_out = row.fan_out.saturating_add(1);
                row.children_visible = true;
                row.deadline = timeout.map(|timeout| now.saturating_add(timeout));
                // It parks when the children are there.
                return Some(FanOut {
                    parent: id,
                    number: row.fan_out,
                    children,
                    needed,
                });
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
            Transition::Blocked { by, look_in } => {
                self.enter(id, Status::Runnable);
                self.set_aside(now, id, by, Some(look_in));
                return None;
            }
            Transition::Done { result } => {
                self.end(now, id, End::Done(result), woken);
                return None;
            }
            Transition::Failed { failure } => {
                self.end(now, id, End::Failed(failure), woken);
                return None;
            }
            Transition::Cancelled { failure } => {
                self.end(now, id, End::Cancelled(failure), woken);
                return None;
            }
            // `Transition` is non-exhaustive outside its crate; the model must learn a new one first.
            other => unreachable!("the model does not know the outcome {other:?}"),
        };
        self.enter(id, status);
        None
    }

    /// Makes the instance terminal, whoever asked for it, and counts it towards the join of its parent.
    pub(super) fn end(&mut self, now: Duration, id: InstanceId, end: End, woken: &mut Woken) {
        let Some(row) = self.instances.get_mut(&id) else {
            return;
        };
        let requested = row.cancellation.take();
        let status = match end {
            End::Done(result) => {
                (row.result, row.failure) = (Some(result), None);
                Status::Done
            }
            End::Failed(failure) => {
                row.failure = Some(failure);
                Status::Failed
            }
            // Whoever asked for the cancellation has said why.
            End::Cancelled(failure) => {
                row.failure = Some(requested.unwrap_or(failure));
                Status::Cancelled
            }
        };
        row.finished = now;
        row.kept = false;
        row.inbox.clear();
        row.used.clear();
        row.awaited.clear();
        (row.deadline, row.deadline_fired) = (None, false);
        row.children_visible = false;
        let joins = row.parent.filter(|_| !row.joined);
        row.joined = row.parent.is_some();
        self.enter(id, status);
        if let Some(join) = joins {
            self.join(now, join, woken);
        }
    }

    /// Counts a child that has ended; late ones of an earlier fan-out count for nothing (rule CHILD-1).
    fn join(&mut self, now: Duration, (parent, fan_out): (InstanceId, u32), woken: &mut Woken) {
        let Some(row) = self.instances.get_mut(&parent) else {
            return;
        };
        if row.status == Status::AwaitingChildren && row.fan_out == fan_out {
            row.left = row.left.saturating_sub(1);
            if row.left == 0 {
                self.wake(now, parent, false, woken);
            }
        }
    }
}
