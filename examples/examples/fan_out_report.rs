//! A report that fans out: one child per region, of another machine, all at once; the parent sums what they found and
//! decides what a failed one means.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres cargo run -p durable-examples --example fan_out_report`

use std::time::Duration;

use durable_core::{
    Context, Engine, Insert, Job, JobError, Machine, Status, StepResult, done, schedule_children, stop,
};
use durable_pg::PgStore;
use serde::{Deserialize, Serialize};

/// Counts what one region sold. Any machine or job can be a child, in any queue.
#[derive(Serialize, Deserialize)]
struct CountRegion {
    region: u32,
}

impl Job for CountRegion {
    const NAME: &'static str = "count_region";
    const QUEUE: &'static str = "counting";
    type Output = u64;

    async fn perform(&self, _context: &Context) -> Result<u64, JobError> {
        if self.region == 13 {
            // Final: no retry makes this region answer.
            return Err(JobError::cancel("region 13 has closed its books"));
        }
        Ok(u64::from(self.region) * 10)
    }
}

#[derive(Serialize, Deserialize)]
struct Report {
    regions: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Count,
    Sum,
}

#[derive(Debug, Serialize, Deserialize)]
struct Totals {
    sold: u64,
    missing: usize,
}

impl Machine for Report {
    const NAME: &'static str = "report";
    type Step = Step;
    type Result = Totals;

    fn first_step() -> Step {
        Step::Count
    }

    async fn step(self, step: Step, context: &Context) -> StepResult<Self> {
        match step {
            Step::Count => {
                // The inserts of the children and the wait are one commit: a crash leaves all of it or nothing.
                let regions = (1..=self.regions).map(|region| Insert::job(CountRegion { region }));
                schedule_children(Step::Sum, self).children(regions).ok()
            }
            Step::Sum => {
                let children = context.children();
                let (done_ones, others): (Vec<_>, Vec<_>) =
                    children.iter().partition(|child| child.status == Status::Done);
                // The engine spreads no failure: here a few missing regions are fine.
                if others.len() > 3 {
                    return stop(format!("{} regions are missing", others.len())).ok();
                }
                let mut sold = 0;
                for child in done_ones {
                    sold += child.done::<u64>()?;
                }
                done(Totals {
                    sold,
                    missing: others.len(),
                })
                .ok()
            }
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = PgStore::connect(&durable_examples::database_url()?).await?;
    let engine = Engine::builder(store)
        .queue("default")
        .queue("counting")
        .machine::<Report>()
        .job::<CountRegion>()
        .start()
        .await?;
    let client = engine.client();
    let id = client
        .insert(Insert::machine(Report { regions: 200 }))
        .await?
        .id();
    let totals: Totals = client.result(id, Duration::from_secs(30)).await?;
    println!("200 regions sold {}, {} missing", totals.sold, totals.missing);
    engine.shutdown().await;
    Ok(())
}
