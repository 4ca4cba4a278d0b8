//! The machine and the jobs of a shop, which the guides and some examples use.

use std::time::Duration;

use durable_core::{Context, Job, JobError, Machine, StepResult, done, next};
use serde::{Deserialize, Serialize};

/// An order on its way from payment to the customer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkout {
    /// The number of the order.
    pub order: u64,
    /// What the payment service calls the payment, once it is made.
    pub payment: Option<String>,
}

impl Checkout {
    /// A new order.
    #[must_use]
    pub const fn new(order: u64) -> Self {
        Self { order, payment: None }
    }
}

/// The steps of [`Checkout`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Take the money.
    Charge,
    /// Send the parcel, an hour later, so that the customer can still call it off.
    Ship,
}

/// How long a customer can call an order off.
const SECOND_THOUGHTS: Duration = Duration::from_secs(3600);

impl Machine for Checkout {
    const NAME: &'static str = "checkout";
    type Step = Step;
    type Result = String;

    fn first_step() -> Step {
        Step::Charge
    }

    async fn step(mut self, step: Step, context: &Context) -> StepResult<Self> {
        match step {
            Step::Charge => {
                // A real payment service is given the instance as idempotency key: the step may run twice.
                self.payment = Some(format!("payment-{}", context.id()));
                next(Step::Ship, self).after(SECOND_THOUGHTS).ok()
            }
            Step::Ship => done(format!("order {} shipped", self.order)).ok(),
        }
    }
}

/// The next version of [`Checkout`]: its orders have names, and are shipped at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckoutV2 {
    /// The name of the order.
    pub order: String,
}

impl Machine for CheckoutV2 {
    const NAME: &'static str = Checkout::NAME;
    const VERSION: u16 = 2;
    type Step = Step;
    type Result = String;

    fn first_step() -> Step {
        Step::Charge
    }

    async fn step(self, step: Step, _context: &Context) -> StepResult<Self> {
        match step {
            Step::Charge => next(Step::Ship, self).ok(),
            Step::Ship => done(format!("{} shipped", self.order)).ok(),
        }
    }
}

/// Sends a receipt by mail.
#[derive(Debug, Serialize, Deserialize)]
pub struct SendReceipt {
    /// The order that it is for.
    pub order: u64,
}

impl Job for SendReceipt {
    const NAME: &'static str = "send_receipt";
    const QUEUE: &'static str = "mail";
    const MAX_ATTEMPTS: u32 = 5;
    type Output = ();

    async fn perform(&self, context: &Context) -> Result<(), JobError> {
        if self.order == 0 {
            return Err(JobError::cancel("there is no order 0"));
        }
        if context.attempt() == 0 {
            return Err("the mail server is busy".into());
        }
        Ok(())
    }
}
