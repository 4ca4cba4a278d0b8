//! The machine of the demonstration: an order of four steps, each with an effect on the outside world.

use std::sync::OnceLock;
use std::time::Duration;

use durable_core::{Context, Failure, Machine, StepResult, done, next, retry};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::ledger::{Run, RunKey};
use super::stage::Ledger;

/// How many steps an order has.
pub(super) const STEPS: usize = 4;
/// How many of a hundred runs of a step fail, and are tried again.
const FAILURES_PERCENT: u32 = 10;
/// How long a step works, in milliseconds.
const WORK: std::ops::Range<u64> = 20..80;
/// How long until a failed step is tried again, in milliseconds.
const RETRY: std::ops::Range<u64> = 50..250;

/// Where the effects of this process go.
pub(super) static LEDGER: OnceLock<Ledger> = OnceLock::new();

/// An order, and which runs of its steps were committed.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    number: u64,
    seed: u64,
    /// Each run whose outcome the store has, whether it went on or failed, in order.
    committed: Vec<Run>,
}

/// The steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OrderStep {
    Reserve,
    Charge,
    Pack,
    Ship,
}

impl OrderStep {
    const fn following(self) -> Option<Self> {
        match self {
            Self::Reserve => Some(Self::Charge),
            Self::Charge => Some(Self::Pack),
            Self::Pack => Some(Self::Ship),
            Self::Ship => None,
        }
    }
}

impl Order {
    pub(super) const fn new(number: u64, seed: u64) -> Self {
        Self {
            number,
            seed,
            committed: Vec::new(),
        }
    }

    /// Chance that is the same for the same run of the same order.
    fn chance(&self, step: OrderStep, context: &Context) -> StdRng {
        let run = u64::from(context.attempt()) * 8 + step as u64;
        StdRng::seed_from_u64(self.seed ^ (self.number << 20) ^ run)
    }
}

fn this_run(step: OrderStep, context: &Context) -> Run {
    Run {
        key: RunKey {
            step,
            attempt: context.attempt(),
            crashes: context.crashes(),
        },
        process: std::process::id(),
    }
}

impl Machine for Order {
    const NAME: &'static str = "demo_order";
    type Step = OrderStep;
    type Result = Vec<Run>;

    fn first_step() -> OrderStep {
        OrderStep::Reserve
    }

    async fn step(mut self, step: OrderStep, context: &Context) -> StepResult<Self> {
        let mut chance = self.chance(step, context);
        tokio::time::sleep(Duration::from_millis(chance.random_range(WORK))).await;
        let run = this_run(step, context);
        LEDGER
            .get()
            .ok_or("the worker has no ledger")?
            .write(context.id(), &run)
            .await?;
        if chance.random_ratio(FAILURES_PERCENT, 100) {
            return Err("the outside world did not answer".into());
        }
        self.committed.push(run);
        match step.following() {
            Some(following) => next(following, self).ok(),
            None => done(self.committed).ok(),
        }
    }

    async fn on_error(mut self, step: OrderStep, failure: &Failure, context: &Context) -> StepResult<Self> {
        let delay = Duration::from_millis(self.chance(step, context).random_range(RETRY));
        self.committed.push(this_run(step, context));
        retry(self).after(delay).because(failure.clone()).ok()
    }
}
