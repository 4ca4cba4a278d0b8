//! W2: inserts.

use std::time::Instant;

use super::super::subject::{Noop, Subject, rate};
use super::super::{Bench, Sample, floors};
use durable_core::Insert;

const CALLERS: u32 = 16;
const BATCH: u32 = 1000;
const UNIT: &str = "instances/s";

pub(super) async fn run(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let calls = bench.scaled(20_000) / CALLERS * CALLERS;
    let floor = floors::insert(&bench.server, CALLERS as usize, calls as usize, 1).await?;
    let single = single(bench, calls).await?;
    let batches = bench.scaled(100);
    let batch_floor = floors::insert(&bench.server, 1, batches as usize, BATCH as usize).await?;
    let subject = Subject::new(&bench.server).await?;
    let started = Instant::now();
    subject.fill(batches * BATCH).await?;
    let batched = rate(batches * BATCH, started.elapsed());
    Ok(vec![
        Sample::new("W2", "single, 16 callers", "insert")
            .value(single, UNIT)
            .floor(rate(calls, floor)),
        Sample::new("W2", "batches of 1,000, one caller", "insert")
            .value(batched, UNIT)
            .floor(rate(batches * BATCH, batch_floor)),
    ])
}

async fn single(bench: &Bench, calls: u32) -> anyhow::Result<f64> {
    let subject = Subject::new(&bench.server).await?;
    let started = Instant::now();
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let client = subject.client.clone();
        callers.push(tokio::spawn(async move {
            for order in 0..u64::from(calls / CALLERS) {
                client.insert(Insert::job(Noop { order })).await?;
            }
            Ok::<_, durable_core::InsertError>(())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    Ok(rate(calls, started.elapsed()))
}
