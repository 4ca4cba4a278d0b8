//! The machine of the demonstration: an order that is reserved, charged once its payment has come, packed and shipped.
//! Without a payment it ends with the charge. Its line items are its children.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use durable_core::{
    Context, Done, Failure, FailureKind, Insert, Machine, Status, StepResult, await_signal, done, next,
    retry, schedule_children,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::ledger::{Ledger, NewEffect};
use super::line::Line;

/// Of 100 tries, this many fail.
const FAILURES_PERCENT: u32 = 10;
/// How long a try takes, in milliseconds.
const WORK_MS: std::ops::Range<u64> = 2..20;
/// How long a failed try waits before the next, in milliseconds.
const RETRY_MS: std::ops::Range<u64> = 50..300;
/// How long an order waits for its payment.
const PATIENCE: Duration = Duration::from_secs(3);

/// The ledger that the steps of this process write to; set once, before the engine starts.
pub(super) static LEDGER: OnceLock<Ledger> = OnceLock::new();

/// The state of an order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    number: u32,
    seed: u64,
    /// The effect of every run whose outcome was committed, in order. A run adds its own to the state that
    /// its outcome stores, so the store itself says which runs count.
    committed: Vec<i64>,
    /// How many payments the charge has seen.
    payments: usize,
}

/// The result of an order: shipped, or ended without a payment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Receipt {
    committed: Vec<i64>,
    payments: usize,
    lines: usize,
}

/// How many line items an order has.
pub(super) const fn lines_of(number: u32) -> u32 {
    1 + number % 3
}

/// The steps of an order, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Reserve,
    Charge,
    Pack,
    Ship,
}

impl Step {
    pub(super) const ALL: [Self; 4] = [Self::Reserve, Self::Charge, Self::Pack, Self::Ship];

    /// The step after this one; `None` after the last.
    pub(super) fn following(self) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step > self)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Charge => "charge",
            Self::Pack => "pack",
            Self::Ship => "ship",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Step {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let step = Self::ALL.into_iter().find(|step| step.name() == name);
        step.ok_or_else(|| anyhow::anyhow!("orders have no step \"{name}\""))
    }
}

impl Order {
    pub(super) const fn new(number: u32, seed: u64) -> Self {
        Self {
            number,
            seed,
            committed: Vec::new(),
            payments: 0,
        }
    }

    fn receipt(self, lines: usize) -> Done<Receipt> {
        done(Receipt {
            committed: self.committed,
            payments: self.payments,
            lines,
        })
    }

    /// What chance decides about the run at this position: the same again when it runs again.
    fn luck(&self) -> Luck {
        let run = u64::from(self.number) << 32 | self.committed.len() as u64;
        let mut random = StdRng::seed_from_u64(self.seed.rotate_left(17) ^ run);
        Luck {
            work: Duration::from_millis(random.random_range(WORK_MS)),
            fails: random.random_ratio(FAILURES_PERCENT, 100),
            pause: Duration::from_millis(random.random_range(RETRY_MS)),
        }
    }
}

struct Luck {
    work: Duration,
    fails: bool,
    pause: Duration,
}

impl Machine for Order {
    const NAME: &'static str = "order";
    type Step = Step;
    type Result = Receipt;

    fn first_step() -> Step {
        Step::Reserve
    }

    async fn step(mut self, step: Step, context: &Context) -> StepResult<Self> {
        let ledger = LEDGER
            .get()
            .ok_or("this process runs orders without an effect ledger")?;
        let luck = self.luck();
        tokio::time::sleep(luck.work).await;
        let effect = NewEffect {
            context,
            position: self.committed.len(),
            step,
            failed: luck.fails,
        };
        self.committed.push(ledger.write(&effect).await?);
        if luck.fails {
            let failure = Failure::new(FailureKind::Error, format!("{step} had bad luck"));
            return retry(self).after(luck.pause).because(failure).ok();
        }
        match step {
            Step::Reserve => await_signal("paid", Step::Charge, self).timeout(PATIENCE).ok(),
            Step::Charge => {
                self.payments = context.signals::<u32>("paid")?.len();
                if self.payments == 0 {
                    return self.receipt(0).ok();
                }
                next(Step::Pack, self).ok()
            }
            Step::Pack => {
                let order = self.number;
                let lines = (0..lines_of(order)).map(|line| Insert::machine(Line { order, line }));
                schedule_children(Step::Ship, self).children(lines).ok()
            }
            Step::Ship => {
                let picked = context.children().iter();
                let picked = picked.filter(|child| child.status == Status::Done).count();
                self.receipt(picked).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luck_depends_on_the_seed_the_order_and_the_position_alone() {
        let fails = |seed, number, position| {
            let mut order = Order::new(number, seed);
            order.committed = vec![0; position];
            (order.luck().fails, order.luck().work, order.luck().pause)
        };
        assert_eq!(fails(1, 7, 2), fails(1, 7, 2));
        let others = [fails(2, 7, 2), fails(1, 8, 2), fails(1, 7, 3)];
        assert!(others.iter().all(|other| *other != fails(1, 7, 2)));
        let failures = (0..1000).filter(|&number| fails(1, number, 0).0).count();
        assert!((50..200).contains(&failures), "{failures} of 1000 failed");
    }

    #[test]
    fn every_step_is_read_back_by_its_name() {
        for step in Step::ALL {
            assert_eq!(step.to_string().parse::<Step>().unwrap(), step);
            assert_eq!(serde_json::to_value(step).unwrap(), step.to_string());
        }
        assert!("refund".parse::<Step>().is_err());
    }
}
