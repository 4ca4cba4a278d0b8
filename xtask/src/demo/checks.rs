//! What the ledger and the store must agree on: pure functions on rows.
//!
//! The order of an instance's life is the order of its outcomes. Each effect says at which *position* its step
//! ran: how many outcomes had been committed when it started. Each order in the store says which effects
//! belong to committed outcomes, one per position. So the ledger and the store together say which runs
//! counted, which did not, and in which order all of them acted on the world.

use std::collections::{BTreeMap, HashMap};

use super::ledger::{Effect, StoredOrder};
use super::order::Step;
use super::payment::Payment;

mod accounts;

/// An order that was inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) instance: i64,
    pub(super) number: u32,
    pub(super) payment: Payment,
}

/// Everything that is known after a run.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) inserted: Vec<Placed>,
    pub(super) orders: Vec<StoredOrder>,
    /// In the order in which they were written.
    pub(super) effects: Vec<Effect>,
    /// The line items that were picked: the number of the order, and that of the line.
    pub(super) lines: Vec<(u32, u32)>,
    /// The worker that was killed, if one was.
    pub(super) killed: Option<String>,
}

/// What is wrong, a sentence each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// An order that is not done, or a step of a done order without an effect.
    pub(super) lost: Vec<String>,
    /// An effect of a step after the outcome of that step was committed.
    pub(super) late: Vec<String>,
    /// A step that ran twice, and neither a retry nor the kill explains it.
    pub(super) unexplained: Vec<String>,
    /// A payment that was not counted once, or a line item that was not picked once.
    pub(super) miscounted: Vec<String>,
}

impl Faults {
    pub(super) fn is_empty(&self) -> bool {
        let kinds = [&self.lost, &self.late, &self.unexplained, &self.miscounted];
        kinds.iter().all(|faults| faults.is_empty())
    }
}

/// The effects of one instance, by position, each in the order in which they were written.
type Positions<'evidence> = BTreeMap<usize, Vec<&'evidence Effect>>;

/// Checks everything.
pub(super) fn check(evidence: &Evidence) -> Faults {
    let mut faults = Faults::default();
    let mut orders: HashMap<i64, &StoredOrder> = HashMap::new();
    for order in &evidence.orders {
        orders.insert(order.instance, order);
    }
    let mut effects: BTreeMap<i64, Vec<&Effect>> = BTreeMap::new();
    for effect in &evidence.effects {
        effects.entry(effect.instance).or_default().push(effect);
    }
    for Placed { instance, .. } in &evidence.inserted {
        let effects = effects.remove(instance).unwrap_or_default();
        let Some(order) = orders.get(instance) else {
            let fault = format!("order {instance} was inserted and is not in the store");
            faults.lost.push(fault);
            continue;
        };
        if order.status == "done" {
            follow(order, &effects, &mut faults);
        } else {
            let failure = order.failure.as_deref().unwrap_or("no reason is stored");
            let fault = format!("order {instance} is {}, not done ({failure})", order.status);
            faults.lost.push(fault);
        }
        late(order, &effects, &mut faults);
        repeated(&effects, evidence.killed.as_deref(), &mut faults);
    }
    for (instance, effects) in effects {
        let fault = format!(
            "{} effects of order {instance}, which nobody inserted",
            effects.len()
        );
        faults.unexplained.push(fault);
    }
    accounts::check(evidence, &mut faults);
    faults
}

/// Follows a done order through its committed outcomes: each has its effect, and together they are the steps
/// in their order, a step again only after it had asked for that; without a payment the charge is the last.
fn follow(order: &StoredOrder, effects: &[&Effect], faults: &mut Faults) {
    let instance = order.instance;
    let mut expected = Some(Step::Reserve);
    for (position, id) in order.committed.iter().enumerate() {
        let effect = effects
            .iter()
            .find(|effect| effect.id == *id && effect.position == position);
        let Some(effect) = effect else {
            let fault = format!("order {instance} is done, but its outcome {position} has no effect");
            faults.lost.push(fault);
            return;
        };
        let found = effect.step;
        if expected.is_none_or(|expected| found < expected) {
            let fault =
                format!("order {instance}: {found} ran again in place {position} and had not asked for it");
            faults.unexplained.push(fault);
        } else if let Some(expected) = expected
            && found != expected
        {
            let fault = format!("order {instance}: {found} ran, but {expected} before it has no effect");
            faults.lost.push(fault);
        }
        expected = if effect.failed {
            Some(found)
        } else if found == Step::Charge && order.payments == 0 {
            None
        } else {
            found.following()
        };
    }
    if let Some(step) = expected {
        let fault = format!("order {instance} is done, but {step} has no effect");
        faults.lost.push(fault);
    }
    let beyond = |effect: &&&Effect| effect.position >= order.committed.len();
    for Effect { id, step, .. } in effects.iter().filter(beyond) {
        let fault = format!("order {instance}: effect {id} of {step} lies behind its last outcome");
        faults.unexplained.push(fault);
    }
}

/// Finds effects after their commit. An outcome has been committed for certain when a step at a later position
/// has acted, and when the instance was finished. A run of the same position after the run whose outcome was
/// committed is counted too: whoever ran it had lost the instance.
fn late(order: &StoredOrder, effects: &[&Effect], faults: &mut Faults) {
    let mut furthest = 0;
    for effect in effects {
        let what = || {
            let Effect { id, step, worker, .. } = effect;
            format!(
                "order {}: effect {id} of {step} by {worker} was written after",
                order.instance
            )
        };
        if effect.position < furthest {
            let fault = format!("{} the effect of a later step", what());
            faults.late.push(fault);
        } else if order
            .finished_at
            .is_some_and(|finished| effect.written_at > finished)
        {
            faults.late.push(format!("{} the order was finished", what()));
        } else if let Some(committed) = order.committed.get(effect.position)
            && effect.id > *committed
        {
            let fault = format!("{} effect {committed}, which was committed", what());
            faults.late.push(fault);
        }
        furthest = furthest.max(effect.position);
    }
}

/// Finds steps that ran twice for no reason. A retry is an outcome and so moves on by one position; two runs at
/// one position are explained only by the kill: the first by the killed worker, the second by one that was
/// told of the crash.
fn repeated(effects: &[&Effect], killed: Option<&str>, faults: &mut Faults) {
    let mut positions = Positions::new();
    for effect in effects {
        positions.entry(effect.position).or_default().push(effect);
    }
    for runs in positions.values() {
        for (first, second) in runs.iter().zip(runs.iter().skip(1)) {
            let by_killed = killed.is_some_and(|killed| first.worker == killed && second.worker != killed);
            if !by_killed || second.crashes == 0 {
                let Effect { instance, step, .. } = first;
                let fault = format!(
                    "order {instance}: {step} ran twice without a retry, by {} and by {} (attempts {} and {})",
                    first.worker, second.worker, first.attempt, second.attempt
                );
                faults.unexplained.push(fault);
            }
        }
        let kills = i32::from(killed.is_some());
        for run in runs.iter().filter(|run| run.crashes > kills) {
            let fault = format!(
                "order {}: {} was told of {} crashes, and {kills} workers were killed",
                run.instance, run.step, run.crashes
            );
            faults.unexplained.push(fault);
        }
    }
}

#[cfg(test)]
mod tests;
