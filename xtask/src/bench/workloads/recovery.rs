//! W14: a worker is killed; how soon its work runs elsewhere.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use durable_core::Insert;

use super::super::subject::{Probe, Subject};
use super::super::worker::Worker;
use super::super::{Bench, Sample};

const INSTANCES: i64 = 50;

pub(super) async fn run(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let mut subject = Subject::new(&bench.server).await?;
    let mut worker = Worker::start(&subject.database.url(), 0).await?;
    worker.go_and_hang().await?;
    subject
        .client
        .insert_all((0..INSTANCES).map(|_| Insert::job(Probe)))
        .await?;
    loop {
        let held: Option<i64> =
            sqlx::query_scalar("SELECT sum(cardinality(instance_ids))::bigint FROM durable.claims")
                .fetch_one(&mut subject.outside)
                .await?;
        if held == Some(INSTANCES) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Started before the kill: a later start would prove the death of its predecessor, and not wait.
    let mut starts = Probe::listen();
    let engine = subject.engine().start().await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    worker.kill().await?;
    let killed = Instant::now();
    let mut last = killed;
    for _ in 0..INSTANCES {
        last = tokio::time::timeout(Duration::from_secs(120), starts.recv())
            .await?
            .context("the work did not run elsewhere")?;
    }
    engine.shutdown().await;
    Ok(vec![
        Sample::new("W14", "default lease", "kill to the last start elsewhere")
            .value(last.saturating_duration_since(killed).as_secs_f64(), "s"),
    ])
}
