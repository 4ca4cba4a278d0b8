//! Commits outcomes, one array per column, and resolves commits whose answer was lost.

use std::collections::HashSet;

use durable_core::store::{Commit, CommitFate, Resolution, Transition};
use durable_core::{ClaimNumber, Failure, Fence, InstanceId, Json, WorkerId};
use sqlx::{Connection as _, Row as _};

use crate::connect::Shared;
use crate::values::{decode_error, microseconds};

/// One array per column of a commit.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<i64>,
    numbers: Vec<i64>,
    seqs: Vec<i32>,
    kinds: Vec<&'static str>,
    steps: Vec<Option<&'a str>>,
    states: Vec<Option<&'a str>>,
    delays: Vec<Option<i64>>,
    results: Vec<Option<&'a str>>,
    failures: Vec<Option<String>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, commit: &'a Commit) -> Result<(), sqlx::Error> {
        let mut columns = (None, None, None, None, None);
        match &commit.transition {
            Transition::Next { step, state, delay } => {
                columns.0 = Some(step.as_str());
                columns.1 = Some(state.as_str());
                columns.2 = Some(microseconds(*delay));
            }
            Transition::Retry {
                state,
                delay,
                failure,
            } => {
                columns.1 = state.as_ref().map(Json::as_str);
                columns.2 = Some(microseconds(*delay));
                columns.4 = failure.as_ref();
            }
            Transition::Done { result } => columns.3 = Some(result.as_str()),
            Transition::Failed { failure } | Transition::Cancelled { failure } => columns.4 = Some(failure),
            _ => {}
        }
        let failure = columns
            .4
            .map(Json::encode::<Failure>)
            .transpose()
            .map_err(decode_error)?;
        self.ids.push(commit.id.get());
        self.numbers.push(commit.fence.claim.get());
        self.seqs.push(commit.fence.seq);
        self.kinds.push(commit.transition.as_str());
        self.steps.push(columns.0);
        self.states.push(columns.1);
        self.delays.push(columns.2);
        self.results.push(columns.3);
        self.failures
            .push(failure.map(|failure| failure.as_str().to_owned()));
        Ok(())
    }
}

pub(crate) async fn commit(
    shared: &Shared,
    worker: WorkerId,
    outcomes: &[Commit],
    closed: &[ClaimNumber],
) -> Result<Vec<CommitFate>, sqlx::Error> {
    let mut columns = Columns::default();
    for outcome in outcomes {
        columns.push(outcome)?;
    }
    let closed: Vec<i64> = closed.iter().map(|number| number.get()).collect();
    let row = sqlx::query(shared.statements.commit.text())
        .bind(worker.get())
        .bind(columns.ids)
        .bind(columns.numbers)
        .bind(columns.seqs)
        .bind(columns.kinds)
        .bind(columns.steps)
        .bind(columns.states)
        .bind(columns.delays)
        .bind(columns.results)
        .bind(columns.failures)
        .bind(closed)
        .fetch_one(&mut *shared.connection().await?)
        .await?;
    let places = |column| -> Result<HashSet<i64>, sqlx::Error> {
        Ok(row
            .try_get::<Option<Vec<i64>>, _>(column)?
            .unwrap_or_default()
            .into_iter()
            .collect())
    };
    let (committed, locked) = (places("committed")?, places("locked")?);
    let fate = |place: i64| {
        if committed.contains(&place) {
            CommitFate::Committed
        } else if locked.contains(&place) {
            CommitFate::Locked
        } else {
            CommitFate::Stale
        }
    };
    Ok((1..).take(outcomes.len()).map(fate).collect())
}

pub(crate) async fn resolve(
    shared: &Shared,
    worker: WorkerId,
    outcomes: &[(InstanceId, Fence)],
) -> Result<Vec<Resolution>, sqlx::Error> {
    let ids: Vec<i64> = outcomes.iter().map(|(id, _)| id.get()).collect();
    let numbers: Vec<i64> = outcomes.iter().map(|(_, fence)| fence.claim.get()).collect();
    let mut connection = shared.connection().await?;
    let mut transaction = connection.begin().await?;
    let claims = sqlx::query(shared.statements.lock_claims.text())
        .bind(worker.get())
        .bind(numbers)
        .fetch_all(&mut *transaction)
        .await?;
    let rows = sqlx::query(shared.statements.fencing_numbers.text())
        .bind(ids)
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let mut held = HashSet::new();
    for claim in claims {
        let number: i64 = claim.try_get("number")?;
        let (ids, seqs): (Vec<i64>, Vec<i32>) = (claim.try_get("instance_ids")?, claim.try_get("seqs")?);
        held.extend(ids.into_iter().zip(seqs).map(|(id, seq)| (number, id, seq)));
    }
    let mut seqs = vec![None; outcomes.len()];
    for row in rows {
        let place = usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(decode_error)?;
        if let Some(slot) = seqs.get_mut(place) {
            *slot = Some(row.try_get::<i32, _>("seq")?);
        }
    }
    let resolution = |((id, fence), seq): (&(InstanceId, Fence), Option<i32>)| {
        if !held.contains(&(fence.claim.get(), id.get(), fence.seq)) {
            Resolution::Lost
        } else if seq == Some(fence.seq) {
            Resolution::NotCommitted
        } else {
            Resolution::Committed
        }
    };
    Ok(outcomes.iter().zip(seqs).map(resolution).collect())
}
