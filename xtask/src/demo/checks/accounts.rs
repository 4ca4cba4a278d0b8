//! Payments and line items: each counted once, whatever was repeated or killed.

use std::collections::BTreeMap;

use super::super::order::lines_of;
use super::super::payment::Payment;
use super::{Evidence, Faults, StoredOrder};

/// Finds orders that count another payment than they got, or whose lines were not picked once each.
pub(super) fn check(evidence: &Evidence, faults: &mut Faults) {
    let orders: BTreeMap<i64, &StoredOrder> = evidence
        .orders
        .iter()
        .map(|order| (order.instance, order))
        .collect();
    let mut picked: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (order, line) in &evidence.lines {
        picked.entry(*order).or_default().push(*line);
    }
    for placed in &evidence.inserted {
        let mut lines = picked.remove(&placed.number).unwrap_or_default();
        lines.sort_unstable();
        // One that is not done has been found already.
        let Some(order) = orders
            .get(&placed.instance)
            .filter(|order| order.status == "done")
        else {
            continue;
        };
        let instance = order.instance;
        let (payments, expected_lines) = match placed.payment {
            Payment::Never => (0, 0),
            Payment::Once | Payment::Twice => (1, lines_of(placed.number)),
        };
        if order.payments != payments {
            let fault = format!(
                "order {instance} counts {} payments, not {payments}",
                order.payments
            );
            faults.miscounted.push(fault);
        }
        if !lines.iter().copied().eq(0..expected_lines) {
            let fault = format!("order {instance}: lines {lines:?} were picked, of {expected_lines}");
            faults.miscounted.push(fault);
        }
        if order.lines != i64::from(expected_lines) {
            let fault = format!(
                "order {instance} went on with {} lines, not {expected_lines}",
                order.lines
            );
            faults.miscounted.push(fault);
        }
    }
    for (number, lines) in picked {
        faults.miscounted.push(format!(
            "{} lines of order number {number}, which nobody placed",
            lines.len()
        ));
    }
}
