//! The machine of the workload: it does what its plan says, and keeps account of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use durable_core::{
    Context, Failure, Insert, InstanceId, Machine, Status, StepResult, await_signal, cancel, done, next,
    retry, schedule_children, stop,
};
use serde::{Deserialize, Serialize};

use super::plan::{Deed, End, Failing, Plan, milliseconds};

thread_local! {
    /// How often steps of each instance began, in all processes of this run.
    static BEGUN: RefCell<BTreeMap<InstanceId, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Forgets the run before.
pub(super) fn forget() {
    BEGUN.take();
}

/// How often a step of each instance began.
pub(super) fn begun() -> BTreeMap<InstanceId, u64> {
    BEGUN.with_borrow(Clone::clone)
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Errand {
    pub(super) plan: Plan,
    pub(super) account: Account,
}

/// What an errand has done, each thing once however often its step ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Account {
    /// Deeds that are done.
    pub(super) deeds: usize,
    /// The numbers of the signals that it has used, in order.
    pub(super) signals: Vec<u64>,
    /// Waits that ended by their deadline.
    pub(super) timeouts: u64,
    /// Something that must not be.
    pub(super) wrong: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Do,
    Heard,
    Joined,
}

impl Errand {
    pub(super) fn insert(plan: Plan) -> Insert<Account> {
        let key = plan.key;
        let insert = Insert::machine(Self {
            plan,
            account: Account::default(),
        });
        match key {
            Some(key) => insert.correlation_key(format!("errand-{key}")),
            None => insert,
        }
    }

    fn ahead(mut self) -> Self {
        self.account.deeds += 1;
        self
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.account.wrong.get_or_insert(what.into());
    }

    fn end(self) -> StepResult<Self> {
        match self.plan.end {
            End::Done => done(self.account).ok(),
            End::Fail => stop("as planned").ok(),
            End::Cancel => cancel("as planned").ok(),
        }
    }

    async fn fail(self, failing: Failing) -> StepResult<Self> {
        match failing {
            Failing::Error => Err("an error, as planned".into()),
            // No panic hook runs, so that nothing is printed.
            Failing::Panic => std::panic::resume_unwind(Box::new("a panic, as planned")),
            Failing::Timeout => std::future::pending().await,
            Failing::Retry => retry(self).after(milliseconds(700)).ok(),
        }
    }

    /// Whether it has used as many signals as its waits up to this one ask for.
    fn has_enough(&self) -> bool {
        let needed = self.plan.signals_until(self.account.deeds);
        self.account.signals.len() as u64 >= needed
    }

    /// What was heard while it waited.
    fn heard(mut self, timeout: Option<u64>, context: &Context) -> StepResult<Self> {
        let signals: Vec<u64> = context.signals("go")?;
        if context.deadline_fired() && timeout.is_none() {
            self.wrong("a deadline fired that was not set");
        }
        let used = self.account.signals.len();
        self.account.signals.extend(signals);
        if !self.has_enough() && !context.deadline_fired() {
            self.account.signals.truncate(used);
            return self.wait(timeout);
        }
        self.account.timeouts += u64::from(!self.has_enough());
        next(Step::Do, self.ahead()).ok()
    }

    fn wait(self, timeout: Option<u64>) -> StepResult<Self> {
        let wait = await_signal("go", Step::Heard, self);
        match timeout {
            Some(timeout) => wait.timeout(milliseconds(timeout)).ok(),
            None => wait.ok(),
        }
    }

    fn joined(mut self, first: Option<u32>, timeout: Option<u64>, context: &Context) -> StepResult<Self> {
        let ended = |status: Status| status.is_terminal();
        let open = context
            .children()
            .iter()
            .filter(|child| !ended(child.status))
            .count();
        let all = context.children().len();
        let needed = first.map_or(all, |first| all.min(first as usize));
        if context.deadline_fired() {
            self.account.timeouts += 1;
            if timeout.is_none() {
                self.wrong("a deadline fired that was not set");
            }
        } else if all - open < needed {
            self.wrong(format!("it joined with {open} of {all} children open"));
        }
        next(Step::Do, self.ahead()).ok()
    }
}

impl Machine for Errand {
    const NAME: &'static str = "errand";
    const MAX_CRASHES: u32 = 1_000_000;
    type Step = Step;
    type Result = Account;

    fn first_step() -> Step {
        Step::Do
    }

    fn timeout(_step: &Step) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }

    async fn step(self, step: Step, context: &Context) -> StepResult<Self> {
        BEGUN.with_borrow_mut(|begun| *begun.entry(context.id()).or_default() += 1);
        let Some(deed) = self.plan.deeds.get(self.account.deeds).cloned() else {
            return self.end();
        };
        match (step, deed) {
            (Step::Do, Deed::Next(delay)) => next(Step::Do, self.ahead()).after(milliseconds(delay)).ok(),
            (Step::Do, Deed::Ahead) => next(Step::Do, self.ahead()).ahead().ok(),
            (Step::Do, Deed::Work(time)) => {
                tokio::time::sleep(milliseconds(time)).await;
                next(Step::Do, self.ahead()).ok()
            }
            (Step::Do, Deed::Fail(times, failing)) => {
                // A crash counts as a try, so it fails this often at most.
                if u64::from(context.attempt()) < times {
                    return self.fail(failing).await;
                }
                next(Step::Do, self.ahead()).ok()
            }
            (Step::Do, Deed::Wait(..)) if self.has_enough() => next(Step::Do, self.ahead()).ok(),
            (Step::Do, Deed::Wait(_, timeout)) => self.wait(timeout),
            (
                Step::Do,
                Deed::SendOut {
                    children,
                    first,
                    timeout,
                },
            ) => {
                let children = children.into_iter().map(Self::insert);
                let mut fan_out = schedule_children(Step::Joined, self).children(children);
                if let Some(first) = first {
                    fan_out = fan_out.first(first);
                }
                if let Some(timeout) = timeout {
                    fan_out = fan_out.timeout(milliseconds(timeout));
                }
                fan_out.ok()
            }
            (Step::Heard, Deed::Wait(_, timeout)) => self.heard(timeout, context),
            (Step::Joined, Deed::SendOut { first, timeout, .. }) => self.joined(first, timeout, context),
            (Step::Heard | Step::Joined, _) => stop("a step of another deed").ok(),
        }
    }

    async fn on_error(self, step: Step, failure: &Failure, context: &Context) -> StepResult<Self> {
        let planned = self.plan.deeds.get(self.account.deeds);
        match (step, planned) {
            (Step::Do, Some(Deed::Fail(..))) if context.attempt() < 1_000 => {
                retry(self).after(milliseconds(300)).ok()
            }
            _ => stop(format!("not planned: {failure}")).ok(),
        }
    }
}
