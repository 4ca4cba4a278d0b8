//! The line items of an order, its children: each is picked once, by a row that is committed with the outcome.

use std::sync::OnceLock;

use durable_core::{Context, Machine, StepResult, done, with_transaction};
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};

use super::order::LEDGER;

/// The store of this process; set once, before the engine starts.
pub(super) static STORE: OnceLock<PgStore> = OnceLock::new();

/// One line item.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) order: u32,
    pub(super) line: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LineStep {
    Pick,
}

impl Machine for Line {
    const NAME: &'static str = "line";
    type Step = LineStep;
    type Result = ();

    fn first_step() -> LineStep {
        LineStep::Pick
    }

    async fn step(self, _step: LineStep, _context: &Context) -> StepResult<Self> {
        let (ledger, store) = LEDGER
            .get()
            .zip(STORE.get())
            .ok_or("this process picks lines without a ledger")?;
        let transaction = ledger.pick(self.order, self.line).await?;
        with_transaction(store.attach(transaction), done(()).ok())
    }
}
