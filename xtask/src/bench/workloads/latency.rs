//! W3 and W3b: how soon work starts, and how soon its result is there, on an idle engine.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use durable_core::Insert;

use super::super::subject::{Probe, Subject};
use super::super::{Bench, Sample};

pub(super) async fn run(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let probes = bench.scaled(500);
    let subject = Subject::new(&bench.server).await?;
    let mut starts = Probe::listen();
    let engine = subject.engine().start().await?;
    let (mut to_start, mut to_result) = (Vec::new(), Vec::new());
    for _ in 0..probes {
        let sent = Instant::now();
        let inserted = subject.client.insert(Insert::job(Probe)).await?;
        subject
            .client
            .result::<()>(inserted.id(), Duration::from_secs(10))
            .await?;
        to_result.push(sent.elapsed());
        let started = starts.recv().await.context("the probe did not start")?;
        to_start.push(started.saturating_duration_since(sent));
        // The engine becomes idle again.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    engine.shutdown().await;
    let mut samples = percentiles("W3", "insert to handler start", to_start);
    samples.extend(percentiles("W3b", "insert to result", to_result));
    Ok(samples)
}

fn percentiles(workload: &'static str, metric: &'static str, mut times: Vec<Duration>) -> Vec<Sample> {
    times.sort_unstable();
    let at = |part: usize| {
        let index = (times.len() * part / 100).min(times.len().saturating_sub(1));
        times.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    vec![
        Sample::new(workload, "same process, p50", metric).value(at(50), "ms"),
        Sample::new(workload, "same process, p99", metric).value(at(99), "ms"),
    ]
}
