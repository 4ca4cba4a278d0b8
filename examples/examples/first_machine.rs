//! The machine of the README, from insert to result.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres cargo run -p durable-examples --example first_machine`

use std::time::Duration;

use durable_core::{Context, Engine, Insert, Machine, StepResult, done, next};
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Checkout {
    order: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Charge,
    Ship,
}

impl Machine for Checkout {
    const NAME: &'static str = "checkout";
    type Step = Step;
    type Result = String;

    fn first_step() -> Step {
        Step::Charge
    }

    async fn step(self, step: Step, context: &Context) -> StepResult<Self> {
        println!("order {}: step {}", self.order, context.step());
        match step {
            Step::Charge => next(Step::Ship, self).ok(),
            Step::Ship => done(format!("order {} shipped", self.order)).ok(),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = PgStore::connect(&durable_examples::database_url()?).await?;
    let engine = Engine::builder(store)
        .queue("default")
        .machine::<Checkout>()
        .start()
        .await?;
    let client = engine.client();
    let id = client.insert(Insert::machine(Checkout { order: 7 })).await?.id();
    let result: String = client.result(id, Duration::from_secs(10)).await?;
    println!("instance {id}: {result}");
    engine.shutdown().await;
    Ok(())
}
