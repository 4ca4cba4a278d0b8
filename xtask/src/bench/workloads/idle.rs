//! W15: an engine with nothing to do.

use std::time::Duration;

use super::super::subject::Subject;
use super::super::worker::Worker;
use super::super::{Bench, Sample};
use sqlx::PgConnection;

pub(super) async fn run(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let seconds = bench.scaled(60).max(10);
    let mut subject = Subject::new(&bench.server).await?;
    let mut worker = Worker::start(&subject.database.url(), 0).await?;
    worker.go().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (statements, processor) = (
        transactions(&mut subject.outside).await?,
        worker.processor_seconds()?,
    );
    tokio::time::sleep(Duration::from_secs(u64::from(seconds))).await;
    let statements = transactions(&mut subject.outside).await? - statements;
    let processor = worker.processor_seconds()? - processor;
    worker.stop().await?;
    let per_second = |value: f64| value / f64::from(seconds);
    Ok(vec![
        Sample::new("W15", "one queue, all roles", "transactions").value(per_second(statements), "1/s"),
        Sample::new("W15", "one queue, all roles", "processor of the engine")
            .value(per_second(processor) * 100.0, "%"),
    ])
}

async fn transactions(connection: &mut PgConnection) -> anyhow::Result<f64> {
    // Sessions report their counts at the end of a transaction, at most once a second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let count: i64 = sqlx::query_scalar(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(connection)
    .await?;
    #[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^52")]
    Ok(count as f64)
}
