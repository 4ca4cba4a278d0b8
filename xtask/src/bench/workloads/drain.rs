//! Drains of no-op jobs: W1, and what must not slow it down (W6, W7, W12, W13).

use std::time::{Duration, Instant};

use super::super::subject::{Noop, Subject, rate};
use super::super::worker::Worker;
use super::super::{Bench, Sample, figures, floors};
use durable_core::Insert;
use sqlx::{Connection as _, PgConnection};

pub(super) const INSTANCES: u32 = 100_000;
const UNIT: &str = "instances/s";

pub(super) async fn layout(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let instances = bench.scaled(INSTANCES);
    let one = floors::drain(&bench.server, &floors::ONE_TABLE, instances).await?;
    let apart = floors::drain(&bench.server, &floors::TRUTH_AND_PLACE, instances).await?;
    Ok(vec![
        Sample::new("layout", "one table, against truth and place apart", "drain")
            .value(rate(instances, one), UNIT)
            .floor(rate(instances, apart)),
    ])
}

pub(super) async fn plain(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let instances = bench.scaled(INSTANCES);
    let floor = floors::drain(&bench.server, &floors::TRUTH_AND_PLACE, instances).await?;
    Ok(vec![
        Sample::new("W1", "one process", "drain")
            .value(drain_plain(bench, instances).await?, UNIT)
            .floor(rate(instances, floor)),
    ])
}

pub(super) async fn drain_plain(bench: &Bench, instances: u32) -> anyhow::Result<f64> {
    let mut subject = Subject::new(&bench.server).await?;
    subject.fill(instances).await?;
    Ok(rate(instances, subject.drain(instances).await?))
}

pub(super) async fn with_terminal_rows(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let instances = bench.scaled(INSTANCES);
    let terminal = bench.scaled(1_000_000);
    let without = drain_plain(bench, instances).await?;
    let mut subject = Subject::new(&bench.server).await?;
    subject.fill(1).await?;
    subject.drain(1).await?;
    sqlx::query(
        "INSERT INTO durable.instances
            (inserted_at, eligible_at, finished_at, lane_id, seq, status, priority, step, state, result)
        SELECT now(), now(), now(), lane_id, 1, 'done', priority, step, state, 'null'
        FROM durable.instances CROSS JOIN generate_series(1, $1)",
    )
    .bind(i64::from(terminal))
    .execute(&mut subject.outside)
    .await?;
    subject.fill(instances).await?;
    let with = rate(instances, subject.drain(instances + 1).await?);
    Ok(vec![
        Sample::new(
            "W6",
            format!("with {terminal} terminal rows, against without"),
            "drain",
        )
        .value(with, UNIT)
        .floor(without),
    ])
}

pub(super) async fn with_future_rows(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let instances = bench.scaled(INSTANCES);
    let without = drain_plain(bench, instances).await?;
    let mut subject = Subject::new(&bench.server).await?;
    let hour = Duration::from_secs(3600);
    let later = |order| Insert::job(Noop { order }).priority(1).run_in(hour);
    subject.fill_with(instances, later).await?;
    subject.fill(instances).await?;
    let with = rate(instances, subject.drain(instances).await?);
    Ok(vec![
        Sample::new(
            "W7",
            format!("with {instances} future rows ahead, against without"),
            "drain",
        )
        .value(with, UNIT)
        .floor(without),
    ])
}

pub(super) async fn several_processes(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let instances = bench.scaled(INSTANCES);
    let mut samples = Vec::new();
    let one = drain_with_processes(bench, instances, 1).await?;
    for processes in [2, 4] {
        let rate = drain_with_processes(bench, instances, processes).await?;
        samples.push(
            Sample::new("W12", format!("{processes} processes, against one"), "drain")
                .value(rate, UNIT)
                .floor(one),
        );
    }
    Ok(samples)
}

async fn drain_with_processes(bench: &Bench, instances: u32, processes: usize) -> anyhow::Result<f64> {
    let mut subject = Subject::new(&bench.server).await?;
    let mut workers = Vec::new();
    for number in 0..processes {
        workers.push(Worker::start(&subject.database.url(), number).await?);
    }
    subject.fill(instances).await?;
    let started = Instant::now();
    for worker in &mut workers {
        worker.go().await?;
    }
    subject.finished(instances).await?;
    let took = started.elapsed();
    for worker in workers {
        worker.stop().await?;
    }
    Ok(rate(instances, took))
}

/// Jobs come in at a fixed rate while another session holds a snapshot, which keeps every dead row from
/// being removed. Compares the first with the last tenth of the time.
pub(super) async fn with_a_held_snapshot(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    const RATE: u32 = 2_000;
    const BATCHES_PER_SECOND: u32 = 20;
    let seconds = bench.scaled(300);
    let mut subject = Subject::new(&bench.server).await?;
    let mut holder = PgConnection::connect(&subject.database.url()).await?;
    sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .execute(&mut holder)
        .await?;
    sqlx::query("SELECT count(*) FROM durable.ready")
        .execute(&mut holder)
        .await?;
    let engine = subject.engine().start().await?;
    let started = Instant::now();
    let mut latencies = Vec::new();
    for batch in 0..seconds * BATCHES_PER_SECOND {
        let due = started + Duration::from_secs(1) / BATCHES_PER_SECOND * batch;
        tokio::time::sleep_until(due.into()).await;
        let sent = Instant::now();
        let orders = 0..u64::from(RATE / BATCHES_PER_SECOND);
        let inserted = subject
            .client
            .insert_all(orders.map(|order| Insert::job(Noop { order })))
            .await?;
        if let Some(last) = inserted.last() {
            subject
                .client
                .result::<()>(last.id(), Duration::from_secs(60))
                .await?;
        }
        latencies.push(sent.elapsed().as_secs_f64() * 1000.0);
    }
    subject.finished(RATE * seconds).await?;
    let kept = rate(RATE * seconds, started.elapsed());
    engine.shutdown().await;
    drop(holder);
    let tenth = latencies.len() / 10;
    let (first, last) = (&latencies[..tenth], &latencies[latencies.len() - tenth..]);
    let variant = format!("a snapshot held for {seconds} s");
    Ok(vec![
        Sample::new("W13", variant.clone(), "rate kept")
            .value(kept, UNIT)
            .floor(f64::from(RATE)),
        Sample::new("W13", variant, "batch of 100, last tenth against first")
            .value(figures::median(last), "ms")
            .floor(figures::median(first)),
    ])
}
