//! Resolves commits whose answer was lost (rule OUT-3).

use std::collections::HashSet;

use durable_core::store::Resolution;
use durable_core::{Fence, InstanceId, WorkerId};
use sqlx::{Connection as _, Row as _};

use crate::connect::Shared;
use crate::values::decode_error;

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
