//! A job that fails twice, waits longer each time, and then succeeds; and one that gives up at once.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres cargo run -p durable-examples --example job_with_retries`

use std::time::Duration;

use durable_core::{Context, Engine, Insert, Job, JobError, WaitError};
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct FetchRate {
    currency: String,
}

impl Job for FetchRate {
    const NAME: &'static str = "fetch_rate";
    const MAX_ATTEMPTS: u32 = 5;
    type Output = f64;

    async fn perform(&self, context: &Context) -> Result<f64, JobError> {
        println!("{}: try {}", self.currency, context.attempt() + 1);
        match (self.currency.as_str(), context.attempt()) {
            // Final at once: no retry will find a currency that is not there.
            ("XXX", _) => Err(JobError::cancel("there is no currency XXX")),
            // Any error: tried again after the backoff.
            (_, 0) => Err("no answer from the bank".into()),
            // An error that says when to come back.
            (_, 1) => Err(JobError::retry_after(
                Duration::from_millis(200),
                "the bank is busy",
            )),
            _ => Ok("1.07".parse()?),
        }
    }

    fn backoff(attempt: u32) -> Duration {
        Duration::from_millis(100) * (attempt + 1)
    }

    fn timeout() -> Option<Duration> {
        Some(Duration::from_secs(5))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = PgStore::connect(&durable_examples::database_url()?).await?;
    let engine = Engine::builder(store)
        .queue("default")
        .job::<FetchRate>()
        .start()
        .await?;
    let client = engine.client();
    for currency in ["USD", "XXX"] {
        let job = FetchRate {
            currency: currency.to_owned(),
        };
        let id = client.insert(Insert::job(job)).await?.id();
        match client.result::<f64>(id, Duration::from_secs(30)).await {
            Ok(rate) => println!("{currency}: {rate}"),
            Err(WaitError::Failed { failure, .. }) => println!("{currency}: gave up: {failure}"),
            Err(other) => return Err(other.into()),
        }
    }
    engine.shutdown().await;
    Ok(())
}
