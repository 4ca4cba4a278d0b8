//! The checks: what the store says was committed, against what the outside world saw.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::order::{OrderStep, STEPS};

/// What tells one run of a step from every other run of the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct RunKey {
    pub(super) step: OrderStep,
    pub(super) attempt: u32,
    pub(super) crashes: u32,
}

/// A run, and the process that it ran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) key: RunKey,
    pub(super) process: u32,
}

/// What the store says of one order.
#[derive(Clone, Debug)]
pub(super) struct StoredOrder {
    pub(super) instance: i64,
    pub(super) status: String,
    /// The runs whose outcomes were committed, in order.
    pub(super) committed: Vec<Run>,
    /// Microseconds by the clock of the server.
    pub(super) inserted_at: i64,
    pub(super) finished_at: i64,
}

/// What the outside world saw: a row of the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) instance: i64,
    pub(super) run: Run,
    /// Microseconds by the clock of the server.
    pub(super) at: i64,
}

/// Everything that is wrong; `killed` is the process that was killed.
pub(super) fn faults(expected: u64, orders: &[StoredOrder], effects: &[Effect], killed: &u32) -> Vec<String> {
    let mut faults = Vec::new();
    if orders.len() as u64 != expected {
        faults.push(format!(
            "{} orders are in the store, {expected} were inserted",
            orders.len()
        ));
    }
    let mut by_instance: BTreeMap<i64, Vec<&Effect>> = BTreeMap::new();
    for effect in effects {
        by_instance.entry(effect.instance).or_default().push(effect);
    }
    for order in orders {
        let effects = by_instance.remove(&order.instance).unwrap_or_default();
        let mut of_order = order_faults(order, &effects, *killed);
        faults.append(&mut of_order);
    }
    for instance in by_instance.keys() {
        faults.push(format!(
            "instance {instance} has effects, and is not in the store"
        ));
    }
    faults
}

fn order_faults(order: &StoredOrder, effects: &[&Effect], killed: u32) -> Vec<String> {
    let instance = order.instance;
    if order.status != "done" {
        return vec![format!("instance {instance} was lost: it is {}", order.status)];
    }
    let mut faults = Vec::new();
    let steps: BTreeSet<OrderStep> = order.committed.iter().map(|run| run.key.step).collect();
    if steps.len() != STEPS {
        faults.push(format!(
            "instance {instance} is done after {} of {STEPS} steps",
            steps.len()
        ));
    }
    for run in &order.committed {
        match effects.iter().filter(|effect| effect.run == *run).count() {
            1 => {}
            count => faults.push(format!(
                "instance {instance}: {:?} was committed and has {count} effects, not 1",
                run.key
            )),
        }
    }
    for effect in effects {
        let run = effect.run;
        if !order.committed.contains(&run) && run.process != killed {
            faults.push(format!(
                "instance {instance}: {:?} ran in process {} and was not committed, though nobody killed that",
                run.key, run.process
            ));
        }
        // The first effect of a later step can only come after the commit of this one.
        let committed_before = effects
            .iter()
            .filter(|other| other.run.key.step > run.key.step)
            .map(|other| other.at)
            .chain([order.finished_at])
            .min();
        if committed_before.is_some_and(|committed| effect.at > committed) {
            faults.push(format!("instance {instance}: {:?} ran after its commit", run.key));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: u32 = 7;

    fn run(step: OrderStep, attempt: u32) -> Run {
        Run {
            key: RunKey {
                step,
                attempt,
                crashes: 0,
            },
            process: 1,
        }
    }

    /// A done order of four steps, the first of which was tried twice, and its effects.
    fn sound() -> (StoredOrder, Vec<Effect>) {
        let committed = vec![
            run(OrderStep::Reserve, 0),
            run(OrderStep::Reserve, 1),
            run(OrderStep::Charge, 0),
            run(OrderStep::Pack, 0),
            run(OrderStep::Ship, 0),
        ];
        let effects = (1..)
            .zip(&committed)
            .map(|(at, run)| Effect {
                instance: 1,
                run: *run,
                at,
            })
            .collect();
        let order = StoredOrder {
            instance: 1,
            status: "done".to_owned(),
            committed,
            inserted_at: 0,
            finished_at: 9,
        };
        (order, effects)
    }

    fn faults_of(change: impl FnOnce(&mut StoredOrder, &mut Vec<Effect>)) -> Vec<String> {
        let (mut order, mut effects) = sound();
        change(&mut order, &mut effects);
        faults(1, &[order], &effects, &KILLED)
    }

    #[test]
    fn each_fault_is_found_and_a_sound_ledger_has_none() {
        assert_eq!(faults_of(|_, _| {}), Vec::<String>::new());
        let extra = |process, at| Effect {
            instance: 1,
            run: Run {
                process,
                ..run(OrderStep::Charge, 9)
            },
            at,
        };
        assert_eq!(
            faults_of(|_, effects| effects.push(extra(KILLED, 3))),
            Vec::<String>::new()
        );
        let cases = [
            (
                "was lost",
                faults_of(|order, _| order.status = "active".to_owned()),
            ),
            (
                "after 3 of 4 steps",
                faults_of(|order, _| {
                    order.committed.pop();
                }),
            ),
            (
                "has 0 effects",
                faults_of(|_, effects| {
                    effects.remove(1);
                }),
            ),
            ("nobody killed", faults_of(|_, effects| effects.push(extra(1, 3)))),
            (
                "after its commit",
                faults_of(|_, effects| effects.push(extra(KILLED, 6))),
            ),
            ("after its commit", faults_of(|order, _| order.finished_at = 4)),
            (
                "not in the store",
                faults_of(|_, effects| {
                    effects.push(Effect {
                        instance: 2,
                        ..extra(1, 3)
                    });
                }),
            ),
        ];
        for (text, found) in cases {
            assert!(
                found.iter().any(|fault| fault.contains(text)),
                "{text}: {found:?}"
            );
        }
        assert!(faults(2, &[sound().0], &sound().1, &KILLED)[0].contains("2 were inserted"));
    }
}
