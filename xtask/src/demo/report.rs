//! What the demonstration tells at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use comfy_table::Table;

use super::ledger::{Effect, StoredOrder};

/// The figures of one run.
pub(super) struct Summary {
    statuses: BTreeMap<String, u64>,
    steps: usize,
    failed: usize,
    run_again: usize,
    recovered_after: Option<Duration>,
    took: Duration,
    /// From insert to terminal, sorted.
    latencies: Vec<Duration>,
}

fn microseconds(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to - from).unwrap_or(0))
}

impl Summary {
    pub(super) fn new(orders: &[StoredOrder], effects: &[Effect], took: Duration, killed_at: i64) -> Self {
        let mut statuses = BTreeMap::new();
        for order in orders {
            *statuses.entry(order.status.clone()).or_default() += 1;
        }
        let after_crash = || effects.iter().filter(|effect| effect.run.key.crashes > 0);
        let run_again: BTreeSet<_> = after_crash()
            .map(|effect| (effect.instance, effect.run.key.step))
            .collect();
        let committed: usize = orders.iter().map(|order| order.committed.len()).sum();
        let went_on = orders.len() * super::order::STEPS;
        let mut latencies: Vec<Duration> = orders
            .iter()
            .map(|order| microseconds(order.inserted_at, order.finished_at))
            .collect();
        latencies.sort_unstable();
        Self {
            statuses,
            steps: effects.len(),
            failed: committed.saturating_sub(went_on),
            run_again: run_again.len(),
            recovered_after: after_crash()
                .map(|effect| effect.at)
                .min()
                .map(|at| microseconds(killed_at, at)),
            took,
            latencies,
        }
    }

    fn percentile(&self, part: usize) -> Duration {
        let index = (self.latencies.len() * part / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(index).copied().unwrap_or_default()
    }

    pub(super) fn table(&self) -> Table {
        #[expect(clippy::cast_precision_loss, reason = "counts, for people")]
        let rate = |count: usize| format!("{:.0} a second", count as f64 / self.took.as_secs_f64());
        let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        let statuses: Vec<String> = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{count} {status}"))
            .collect();
        let mut table = Table::new();
        table.add_row(["orders", &statuses.join(", ")]);
        table.add_row(["steps run", &self.steps.to_string()]);
        table.add_row(["steps that failed and were tried again", &self.failed.to_string()]);
        table.add_row(["steps run again because of the kill", &self.run_again.to_string()]);
        table.add_row([
            "from the kill to the first of them",
            &self
                .recovered_after
                .map_or_else(|| "none was held".to_owned(), seconds),
        ]);
        table.add_row(["orders", &rate(self.latencies.len())]);
        table.add_row(["steps", &rate(self.steps)]);
        table.add_row(["insert to done, p50", &seconds(self.percentile(50))]);
        table.add_row(["insert to done, p99", &seconds(self.percentile(99))]);
        table
    }
}
