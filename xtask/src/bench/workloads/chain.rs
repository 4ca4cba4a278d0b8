//! W4: machines of five steps.

use durable_core::Insert;

use super::super::subject::{Chain, Subject, rate};
use super::super::{Bench, Sample, floors};

const STEPS: u32 = 5;

pub(super) async fn run(bench: &Bench) -> anyhow::Result<Vec<Sample>> {
    let instances = bench.scaled(20_000);
    let floor = floors::drain(&bench.server, &floors::CHAIN, instances).await?;
    let mut subject = Subject::new(&bench.server).await?;
    subject
        .fill_with(instances, |order| Insert::machine(Chain { order }))
        .await?;
    let took = subject.drain(instances).await?;
    Ok(vec![
        Sample::new("W4", "five steps, through the queue", "drain")
            .value(rate(instances * STEPS, took), "steps/s")
            .floor(rate(instances * STEPS, floor)),
    ])
}
