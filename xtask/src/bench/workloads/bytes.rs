//! W8 and W9: what the engine writes.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{ClaimRequest, NewWorker};
use durable_core::{ClaimNumber, Context, Insert, Job, JobError, QueueName};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::super::subject::Subject;
use super::super::{Bench, Sample};

/// A job with a state of any size.
#[derive(Serialize, Deserialize)]
struct Large {
    text: String,
}

impl Job for Large {
    const NAME: &'static str = "large";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

async fn wal_position(connection: &mut PgConnection) -> anyhow::Result<f64> {
    let position: i64 =
        sqlx::query_scalar("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
            .fetch_one(connection)
            .await?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "differences of positions of one run stay far below 2^52"
    )]
    Ok(position as f64)
}

pub(super) async fn large_state(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    const ROWS: u32 = 20;
    let mut samples = Vec::new();
    for (name, bytes) in [
        ("state of 1 kB", 1_000),
        ("state of 10 kB", 10_000),
        ("state of 1 MB", 1_000_000),
    ] {
        let mut subject = Subject::new(&bench.server).await?;
        // Random, so that no compression makes it small.
        let text: String = (0..bytes)
            .map(|_| char::from(rand::random_range(b'a'..=b'z')))
            .collect();
        let inserts: Vec<_> = (0..ROWS)
            .map(|_| Insert::job(Large { text: text.clone() }))
            .collect();
        let machine = Insert::job(Large { text: String::new() }).encode()?.machine;
        subject.client.insert_all(inserts).await?;
        let lease = Duration::from_secs(3600);
        let worker = NewWorker {
            name: "bench".to_owned(),
            lease,
            process: None,
            roles: durable_core::store::Roles::ALL,
        };
        let worker = subject.store.register(worker).await?;
        let mut heart = subject.store.heart();
        heart.beat(worker, lease).await?;
        // After a checkpoint, the first change of each page would write the whole page.
        let queue = QueueName::new("default")?;
        let request = |number| ClaimRequest {
            worker,
            number: ClaimNumber::new(number),
            queue: queue.clone(),
            machines: Arc::new([machine.clone()]),
            limit: ROWS as usize / 2,
        };
        subject.store.claim(request(1)).await?;
        let before = wal_position(&mut subject.outside).await?;
        subject.store.claim(request(2)).await?;
        let claimed = wal_position(&mut subject.outside).await?;
        heart.beat(worker, lease).await?;
        let beaten = wal_position(&mut subject.outside).await?;
        samples.push(Sample::new("W8", name, "claim of 10").value(claimed - before, "bytes of WAL"));
        samples.push(Sample::new("W8", name, "heartbeat").value(beaten - claimed, "bytes of WAL"));
    }
    Ok(samples)
}

pub(super) async fn per_job(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let instances = bench.scaled(100_000);
    let mut subject = Subject::new(&bench.server).await?;
    sqlx::query("CHECKPOINT").execute(&mut subject.outside).await?;
    let before = wal_position(&mut subject.outside).await?;
    subject.fill(instances).await?;
    let commits_before = commits(&mut subject.outside).await?;
    subject.drain(instances).await?;
    let bytes = wal_position(&mut subject.outside).await? - before;
    let commits = commits(&mut subject.outside).await? - commits_before;
    let per_job = |value: f64| value / f64::from(instances);
    Ok(vec![
        Sample::new("W9", "small state", "insert to done, per job").value(per_job(bytes), "bytes of WAL"),
        Sample::new("W9", "under load", "transactions, one statement each, per job")
            .value(per_job(commits), "transactions"),
    ])
}

/// How many transactions this database has seen. The engine's statements are transactions of one statement
/// each, so this counts both; the look-outs of this program are in it too.
async fn commits(connection: &mut PgConnection) -> anyhow::Result<f64> {
    sqlx::query("SELECT pg_stat_force_next_flush()")
        .execute(&mut *connection)
        .await?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let count: i64 = sqlx::query_scalar(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(connection)
    .await?;
    #[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^52")]
    Ok(count as f64)
}
