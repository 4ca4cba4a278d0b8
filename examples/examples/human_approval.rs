//! An expense that a person approves. One is approved, one gets no answer and is escalated when its deadline fires, and
//! one is cancelled by an operator.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres cargo run -p durable-examples --example human_approval`

use std::time::Duration;

use durable_core::{
    Client, Context, Engine, Insert, InstanceId, Machine, Settled, StepResult, await_signal, done,
};
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Expense {
    what: String,
    /// Days, in a company; a moment here.
    patience: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Ask,
    Decide,
    Escalated,
}

/// What the person says.
#[derive(Serialize, Deserialize)]
struct Answer {
    approved: bool,
    by: String,
}

impl Machine for Expense {
    const NAME: &'static str = "expense";
    type Step = Step;
    type Result = String;

    fn first_step() -> Step {
        Step::Ask
    }

    async fn step(self, step: Step, context: &Context) -> StepResult<Self> {
        let patience = self.patience;
        match step {
            // A mail to the approver goes out here. The wait holds no thread and no connection, for years if need be.
            Step::Ask => await_signal("answer", Step::Decide, self).timeout(patience).ok(),
            // A timeout is no failure: the same step runs, and the context says why.
            Step::Decide if context.deadline_fired() => {
                println!("nobody answered about {}: asking the boss", self.what);
                await_signal("answer", Step::Escalated, self).ok()
            }
            Step::Decide | Step::Escalated => {
                let answer: Answer = context.signal("answer")?;
                let verdict = if answer.approved { "approved" } else { "refused" };
                done(format!("{} {verdict} by {}", self.what, answer.by)).ok()
            }
        }
    }
}

async fn submit(client: &Client, what: &str, patience: Duration) -> anyhow::Result<InstanceId> {
    let what = what.to_owned();
    Ok(client
        .insert(Insert::machine(Expense { what, patience }))
        .await?
        .id())
}

/// What the web form of the approver calls.
async fn answer(client: &Client, id: InstanceId, by: &str) -> anyhow::Result<()> {
    let answer = Answer {
        approved: true,
        by: by.to_owned(),
    };
    client.signal(id, "answer", &answer).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = PgStore::connect(&durable_examples::database_url()?).await?;
    let engine = Engine::builder(store)
        .queue("default")
        .machine::<Expense>()
        .start()
        .await?;
    let client = engine.client();
    let (day, moment, limit) = (
        Duration::from_secs(86_400),
        Duration::from_millis(100),
        Duration::from_secs(30),
    );

    let chair = submit(client, "the chair", day).await?;
    answer(client, chair, "Ada").await?;
    println!("{}", client.result::<String>(chair, limit).await?);

    let desk = submit(client, "the desk", moment).await?;
    while client.snapshot(desk).await?.is_some_and(|desk| desk.visit < 2) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    answer(client, desk, "the boss").await?;
    println!("{}", client.result::<String>(desk, limit).await?);

    let yacht = submit(client, "the yacht", day).await?;
    client.cancel(yacht, "not with our money").await?;
    if let Settled::Cancelled(reason) = client.settled::<String>(yacht, limit).await? {
        println!("the yacht: {reason}");
    }
    engine.shutdown().await;
    Ok(())
}
