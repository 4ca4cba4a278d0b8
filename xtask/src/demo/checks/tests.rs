//! Fabricated evidence: each check must find what it is for, and nothing else.

use super::super::order::lines_of;
use super::*;

/// Two orders: one with a retry, one whose charge the killed worker ran before its successor did.
fn sound() -> Evidence {
    let mut evidence = Evidence {
        inserted: vec![placed(1), placed(2)],
        orders: vec![done(1, &[1, 2, 5, 7, 9]), done(2, &[3, 6, 8, 10])],
        effects: vec![
            effect(1, 1, 0, Step::Reserve),
            effect(2, 1, 1, Step::Charge),
            effect(3, 2, 0, Step::Reserve),
            effect(4, 2, 1, Step::Charge),
            effect(5, 1, 2, Step::Charge),
            effect(6, 2, 1, Step::Charge),
            effect(7, 1, 3, Step::Pack),
            effect(8, 2, 2, Step::Pack),
            effect(9, 1, 4, Step::Ship),
            effect(10, 2, 3, Step::Ship),
        ],
        lines: [1, 2].into_iter().flat_map(all_lines).collect(),
        killed: Some("killed".to_owned()),
    };
    at(&mut evidence, 2).failed = true;
    at(&mut evidence, 4).worker = "killed".to_owned();
    at(&mut evidence, 6).crashes = 1;
    evidence
}

/// The number of an order is that of its instance here.
fn placed(number: u32) -> Placed {
    Placed {
        instance: i64::from(number),
        number,
        payment: Payment::Once,
    }
}

fn all_lines(number: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..lines_of(number)).map(move |line| (number, line))
}

fn done(instance: i64, committed: &[i64]) -> StoredOrder {
    StoredOrder {
        instance,
        status: "done".to_owned(),
        failure: None,
        committed: committed.to_vec(),
        payments: 1,
        lines: i64::from(lines_of(u32::try_from(instance).unwrap())),
        inserted_at: 0,
        finished_at: Some(1_000),
    }
}

/// An effect that was written at ten times its number.
fn effect(id: i64, instance: i64, position: usize, step: Step) -> Effect {
    Effect {
        id,
        written_at: id * 10,
        instance,
        position,
        step,
        attempt: 0,
        crashes: 0,
        failed: false,
        worker: "other".to_owned(),
    }
}

fn at(evidence: &mut Evidence, id: i64) -> &mut Effect {
    let mut effects = evidence.effects.iter_mut();
    effects.find(|effect| effect.id == id).unwrap()
}

/// How many faults of each kind sound evidence has after a change: lost, late, unexplained.
fn faults(change: impl FnOnce(&mut Evidence)) -> (usize, usize, usize) {
    let mut evidence = sound();
    change(&mut evidence);
    let faults = check(&evidence);
    (faults.lost.len(), faults.late.len(), faults.unexplained.len())
}

#[test]
fn a_retry_and_a_kill_are_no_faults() {
    assert_eq!(check(&sound()), Faults::default());
    assert!(check(&sound()).is_empty());
}

#[test]
fn an_order_that_is_missing_or_not_done_is_lost() {
    let missing = |evidence: &mut Evidence| drop(evidence.orders.remove(0));
    // Its effects are sound as far as they can be judged.
    assert_eq!(faults(missing), (1, 0, 0));
    for status in ["active", "failed", "cancelled"] {
        let change = |evidence: &mut Evidence| evidence.orders[1].status = status.to_owned();
        assert_eq!(faults(change), (1, 0, 0), "{status}");
    }
    assert_eq!(faults(|evidence| evidence.inserted.push(placed(3))), (1, 0, 0));
}

#[test]
fn a_step_of_a_done_order_without_an_effect_is_lost() {
    let without_row = |evidence: &mut Evidence| evidence.effects.retain(|effect| effect.id != 7);
    assert_eq!(faults(without_row), (1, 0, 0));
    let without_last = |evidence: &mut Evidence| {
        evidence.effects.retain(|effect| effect.id != 9);
        evidence.orders[0].committed.pop();
    };
    assert_eq!(faults(without_last), (1, 0, 0));
    let skipped = |evidence: &mut Evidence| {
        evidence.orders[1].committed = vec![3, 8, 10];
        evidence.effects.retain(|effect| ![4, 6].contains(&effect.id));
        at(evidence, 8).position = 1;
        at(evidence, 10).position = 2;
    };
    assert_eq!(faults(skipped), (1, 0, 0));
    let of_another = |evidence: &mut Evidence| at(evidence, 9).instance = 2;
    assert!(faults(of_another).0 > 0);
}

#[test]
fn an_effect_after_a_later_step_is_late() {
    let change = |evidence: &mut Evidence| {
        let mut zombie = effect(11, 2, 1, Step::Charge);
        zombie.worker = "killed".to_owned();
        evidence.effects.push(zombie);
    };
    let (lost, late, _) = faults(change);
    assert_eq!((lost, late), (0, 1));
}

#[test]
fn an_effect_after_the_run_that_was_committed_is_late() {
    // The store says that the killed worker's run was committed, so the second run came after its commit.
    let change = |evidence: &mut Evidence| evidence.orders[1].committed[1] = 4;
    assert_eq!(faults(change), (0, 1, 0));
}

#[test]
fn an_effect_after_the_order_was_finished_is_late() {
    assert_eq!(faults(|evidence| at(evidence, 10).written_at = 1_001), (0, 1, 0));
    assert_eq!(faults(|evidence| at(evidence, 10).written_at = 1_000), (0, 0, 0));
    // Also of an order that ended badly.
    let failed = |evidence: &mut Evidence| {
        evidence.orders[1].status = "failed".to_owned();
        at(evidence, 10).written_at = 1_001;
    };
    assert_eq!(faults(failed), (1, 1, 0));
}

#[test]
fn a_step_that_runs_twice_for_no_reason_is_found() {
    // Neither was the worker of the first run killed, ...
    let alive = |evidence: &mut Evidence| at(evidence, 4).worker = "other".to_owned();
    assert_eq!(faults(alive), (0, 0, 1));
    // ... nor was the second run told of a crash, ...
    assert_eq!(faults(|evidence| at(evidence, 6).crashes = 0), (0, 0, 1));
    // ... nor can the killed worker have run it again, ...
    let again = |evidence: &mut Evidence| at(evidence, 6).worker = "killed".to_owned();
    assert_eq!(faults(again), (0, 0, 1));
    // ... nor was anything killed at all: then the crash that was told of is a riddle too.
    assert_eq!(faults(|evidence| evidence.killed = None), (0, 0, 2));
    // Nor had it asked for a retry.
    assert_eq!(faults(|evidence| at(evidence, 2).failed = false), (0, 0, 1));
}

#[test]
fn a_crash_that_nobody_caused_is_found() {
    assert_eq!(faults(|evidence| at(evidence, 9).crashes = 2), (0, 0, 1));
    // One crash is explained by the kill, though it left no effect.
    assert_eq!(faults(|evidence| at(evidence, 9).crashes = 1), (0, 0, 0));
}

#[test]
fn effects_that_no_outcome_accounts_for_are_found() {
    let stray = |evidence: &mut Evidence| evidence.effects.push(effect(11, 9, 0, Step::Reserve));
    assert_eq!(faults(stray), (0, 0, 1));
    let beyond = |evidence: &mut Evidence| evidence.effects.push(effect(11, 2, 4, Step::Ship));
    assert_eq!(faults(beyond), (0, 0, 1));
    // A step that the store lists once more after the last.
    let one_more = |evidence: &mut Evidence| {
        evidence.effects.push(effect(11, 2, 4, Step::Ship));
        evidence.orders[1].committed.push(11);
    };
    assert_eq!(faults(one_more), (0, 0, 1));
}

#[test]
fn a_payment_or_a_line_that_does_not_count_once_is_found() {
    let miscounted = |change: fn(&mut Evidence)| {
        let mut evidence = sound();
        change(&mut evidence);
        check(&evidence).miscounted.len()
    };
    assert_eq!(miscounted(|evidence| evidence.orders[0].payments = 2), 1);
    assert_eq!(miscounted(|evidence| evidence.lines.extend_from_within(..1)), 1);
    assert_eq!(
        miscounted(|evidence| evidence.lines.truncate(evidence.lines.len() - 1)),
        1
    );
    assert_eq!(miscounted(|evidence| evidence.orders[1].lines += 1), 1);
    assert_eq!(miscounted(|evidence| evidence.lines.push((9, 0))), 1);
    // Nobody paid, so it should have counted nothing, and stopped at the charge.
    assert_eq!(
        miscounted(|evidence| evidence.inserted[0].payment = Payment::Never),
        3
    );
}

#[test]
fn an_order_that_nobody_paid_ends_with_the_charge() {
    let unpaid = |evidence: &mut Evidence| {
        evidence.inserted[0].payment = Payment::Never;
        evidence.orders[0].committed.truncate(3);
        evidence.orders[0].payments = 0;
        evidence.orders[0].lines = 0;
        evidence
            .effects
            .retain(|effect| effect.instance != 1 || effect.position < 3);
        evidence.lines.retain(|(order, _)| *order != 1);
    };
    let mut evidence = sound();
    unpaid(&mut evidence);
    assert_eq!(check(&evidence), Faults::default());
}
