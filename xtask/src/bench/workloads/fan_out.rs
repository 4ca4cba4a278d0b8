//! W11: one parent, many children, and the join.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use durable_core::Insert;

use super::super::subject::{FanOut, Subject, rate};
use super::super::{Bench, Sample};
use super::drain::{INSTANCES, drain_plain};

/// The same in a quick run: the size of the fan-out is what is measured.
const CHILDREN: u32 = 10_000;
const LONGEST: Duration = Duration::from_secs(120);

/// From the insert of the parent on a running engine until its result is there, compared with a plain drain.
pub(super) async fn run(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let plain = drain_plain(bench, bench.scaled(INSTANCES)).await?;
    let subject = Subject::new(&bench.server).await?;
    let engine = subject.engine().start().await?;
    let client = engine.client();
    let started = Instant::now();
    let children = u64::from(CHILDREN);
    let parent = client.insert(Insert::machine(FanOut { children })).await?.id();
    let joined: u64 = client.result(parent, LONGEST).await.context("the parent")?;
    let took = started.elapsed();
    engine.shutdown().await;
    anyhow::ensure!(joined == children, "{joined} children joined");
    Ok(vec![
        Sample::new("W11", "10,000 children and the join, against W1", "fan-out")
            .value(rate(CHILDREN, took), "children/s")
            .floor(plain),
    ])
}
