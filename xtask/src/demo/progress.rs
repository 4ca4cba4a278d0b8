//! What happens now: a bar on a terminal, a line now and then elsewhere; all on standard error.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::ledger::Count;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Over how long the rate of steps is measured.
const RATE_OVER: Duration = Duration::from_millis(500);

/// Shows how far the orders are.
pub(super) struct Progress {
    /// None where there is no terminal.
    bar: Option<ProgressBar>,
    total: u64,
    now: String,
    printed: Instant,
    /// The last measurement of the rate: when, the effects then, and the rate.
    rate: (Instant, u64, f64),
}

impl Progress {
    pub(super) fn new(total: u64) -> anyhow::Result<Self> {
        let bar = if std::io::stderr().is_terminal() {
            let template = "{bar:30} {pos}/{len} orders finished  {msg}";
            Some(ProgressBar::new(total).with_style(ProgressStyle::with_template(template)?))
        } else {
            None
        };
        Ok(Self {
            bar,
            total,
            now: String::new(),
            printed: Instant::now(),
            rate: (Instant::now(), 0, 0.0),
        })
    }

    /// Something has happened, and goes on until the next thing happens.
    pub(super) fn say(&mut self, now: impl Into<String>) {
        self.now = now.into();
        match &self.bar {
            Some(bar) => bar.println(&self.now),
            None => eprintln!("{}", self.now),
        }
    }

    pub(super) fn count(&mut self, count: Count) {
        let (since, effects, _) = self.rate;
        let passed = since.elapsed();
        if passed >= RATE_OVER {
            let steps = u32::try_from(count.effects.saturating_sub(effects)).unwrap_or(u32::MAX);
            let rate = f64::from(steps) / passed.as_secs_f64();
            self.rate = (Instant::now(), count.effects, rate);
        }
        let rate = self.rate.2;
        if let Some(bar) = &self.bar {
            bar.set_position(count.terminal);
            bar.set_message(format!("{rate:.0} steps/s  {}", self.now));
        } else if self.printed.elapsed() >= LINE_EVERY {
            self.printed = Instant::now();
            eprintln!(
                "{}/{} orders finished, {rate:.0} steps/s",
                count.terminal, self.total
            );
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
