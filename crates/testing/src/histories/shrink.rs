//! Makes a failing history short: what can be left out, while the stores still disagree, is left out.

use std::sync::Arc;

use durable_core::Store;

use super::call::Call;
use super::{Difference, Reached, play};

/// Leaves out halves first, then smaller and smaller runs of calls, then single calls until none can go, then
/// single entries of batches.
pub(super) async fn shrink(
    history: Vec<Call>,
    difference: Difference,
    model: &impl AsyncFn() -> Arc<dyn Store>,
    subject: &impl AsyncFn() -> Arc<dyn Store>,
) -> (Vec<Call>, Difference) {
    let mut shortest = ended((history, difference));
    let mut run = shortest.0.len() / 2;
    while run > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < shortest.0.len() {
            let mut attempt = shortest.0.clone();
            attempt.drain(at..(at + run).min(shortest.0.len()));
            if let Some(found) = fails(attempt, &shortest.0, model, subject).await {
                shortest = found;
                shorter = true;
            } else {
                at += run;
            }
        }
        if !(shorter && run == 1) {
            run /= 2;
        }
    }
    let mut at = 0;
    while at < shortest.0.len() {
        let mut found = None;
        for smaller in shortest.0[at].smaller() {
            let mut attempt = shortest.0.clone();
            attempt[at] = smaller;
            found = fails(attempt, &shortest.0, model, subject).await;
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(found) => shortest = found,
            None => at += 1,
        }
    }
    shortest
}

/// The history up to the call that was answered differently.
fn ended((mut history, difference): (Vec<Call>, Difference)) -> (Vec<Call>, Difference) {
    if difference.at == history.len() {
        history.push(Call::Snapshots);
    }
    history.truncate(difference.at + 1);
    (history, difference)
}

/// Whether the stores still disagree, on a history that is really smaller: one that lost its look at all
/// instances gets it back when that is where they differ.
async fn fails(
    attempt: Vec<Call>,
    than: &[Call],
    model: &impl AsyncFn() -> Arc<dyn Store>,
    subject: &impl AsyncFn() -> Arc<dyn Store>,
) -> Option<(Vec<Call>, Difference)> {
    let (one, two) = (model().await, subject().await);
    let difference = play(&attempt, one, two, &mut Reached::default()).await?;
    let found = ended((attempt, difference));
    (size(&found.0) < size(than)).then_some(found)
}

fn size(history: &[Call]) -> usize {
    history.iter().map(Call::size).sum()
}
