//! The figures of a run, and what the checks say, as tables.

use std::collections::{BTreeMap, HashSet};

use comfy_table::Table;
use comfy_table::presets::ASCII_FULL_CONDENSED;

use super::checks::{Evidence, Faults};
use super::payment::Payment;

/// How many faults of one kind are shown.
const SHOWN: usize = 5;

/// What a run has shown, as lines of a table.
pub(super) fn figures(evidence: &Evidence, killed_at: i64) -> Table {
    let mut table = table(["what", "figure"]);
    let mut add = |what: &str, figure: String| {
        table.add_row([what.to_owned(), figure]);
    };
    let mut statuses = BTreeMap::new();
    for order in &evidence.orders {
        *statuses.entry(order.status.as_str()).or_insert(0) += 1;
    }
    // Those that should have none are worth saying too.
    let counts = ["done", "failed", "cancelled"]
        .map(|status| format!("{} {status}", statuses.remove(status).unwrap_or(0)));
    let others = statuses.iter().map(|(status, count)| format!("{count} {status}"));
    let counts: Vec<String> = counts.into_iter().chain(others).collect();
    add("orders", counts.join(", "));

    let failed = evidence.effects.iter().filter(|effect| effect.failed).count();
    add(
        "steps run",
        format!(
            "{}, of which {failed} failed by chance and were retried",
            evidence.effects.len()
        ),
    );
    let unpaid = evidence.orders.iter().filter(|order| order.payments == 0).count();
    let twice = evidence
        .inserted
        .iter()
        .filter(|placed| placed.payment == Payment::Twice);
    add(
        "payments",
        format!(
            "{} counted, {} reported twice, {unpaid} never came",
            evidence.orders.len() - unpaid,
            twice.count()
        ),
    );
    add(
        "line items",
        format!("{} picked, as children", evidence.lines.len()),
    );
    add("steps run again because of the kill", again(evidence));
    let started = evidence.orders.iter().map(|order| order.inserted_at).min();
    let finished = evidence.orders.iter().filter_map(|order| order.finished_at);
    if let (Some(started), Some(last)) = (started, finished.clone().max()) {
        let took = seconds(last - started);
        let rate = |count: usize| format!("{:.0}", count as f64 / took);
        add(
            "throughput",
            format!(
                "{} orders/s, {} steps/s, over {took:.1} s",
                rate(finished.count()),
                rate(evidence.effects.len())
            ),
        );
    }
    let mut latencies: Vec<i64> = evidence
        .orders
        .iter()
        .filter_map(|order| Some(order.finished_at? - order.inserted_at))
        .collect();
    latencies.sort_unstable();
    if let (Some(half), Some(most)) = (percentile(&latencies, 50), percentile(&latencies, 99)) {
        add(
            "latency, insert to finish",
            format!("p50 {:.2} s, p99 {:.2} s", seconds(half), seconds(most)),
        );
    }
    add("the killed worker's work waited", waited(evidence, killed_at));
    table
}

/// The runs that a crash brought about, and those among them whose step had acted before the crash.
fn again(evidence: &Evidence) -> String {
    let runs = evidence.effects.iter().filter(|effect| effect.crashes > 0);
    let again: HashSet<_> = runs.map(|effect| (effect.instance, effect.position)).collect();
    let killed = evidence.killed.as_deref();
    let twice = evidence.effects.iter().filter(|effect| {
        Some(effect.worker.as_str()) == killed && again.contains(&(effect.instance, effect.position))
    });
    format!(
        "{}, of which {} had acted but were not committed",
        again.len(),
        twice.count()
    )
}

/// How long after the kill its first and last step ran again.
fn waited(evidence: &Evidence, killed_at: i64) -> String {
    let runs = evidence.effects.iter().filter(|effect| effect.crashes > 0);
    let waits = runs.map(|effect| seconds(effect.written_at - killed_at));
    match (waits.clone().min_by(f64::total_cmp), waits.max_by(f64::total_cmp)) {
        (Some(first), Some(last)) => format!("{first:.2} s until the first step, {last:.2} s until the last"),
        _ => "it held no work when it was killed".to_owned(),
    }
}

/// What the checks say.
pub(super) fn verdicts(faults: &Faults) -> Table {
    let mut table = table(["check", "verdict"]);
    for (check, faults) in [
        ("nothing is lost", &faults.lost),
        ("nothing ran after its commit", &faults.late),
        (
            "nothing ran twice but for a retry or the kill",
            &faults.unexplained,
        ),
        ("each payment and line item counts once", &faults.miscounted),
    ] {
        let verdict = match faults.len() {
            0 => "ok".to_owned(),
            count => format!("FAILED ({count})"),
        };
        table.add_row([check.to_owned(), verdict]);
    }
    table
}

/// The faults themselves, a few of each kind.
pub(super) fn explain(faults: &Faults) -> Vec<String> {
    let mut lines = Vec::new();
    for faults in [
        &faults.lost,
        &faults.late,
        &faults.unexplained,
        &faults.miscounted,
    ] {
        lines.extend(faults.iter().take(SHOWN).cloned());
        if let Some(more) = faults.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            lines.push(format!("and {more} more like it"));
        }
    }
    lines
}

fn table(header: [&str; 2]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED).set_header(header);
    table
}

fn seconds(microseconds: i64) -> f64 {
    microseconds as f64 / 1e6
}

/// The smallest value that at least this many percent of the values do not exceed.
fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<i64> = (1..=200).collect();
        assert_eq!(percentile(&values, 50), Some(100));
        assert_eq!(percentile(&values, 99), Some(198));
        assert_eq!(percentile(&values[..1], 99), Some(1));
        assert_eq!(percentile(&[], 50), None);
    }
}
