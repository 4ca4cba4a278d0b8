//! Claims batches, after moving to `ready` what has become due (rules CLAIM-1, CLAIM-2).

use std::time::Duration;

use durable_core::store::{ClaimRequest, Claimed, ClaimedInstance};
use durable_core::{Fence, InstanceId, Json, MachineKey, QueueName};
use sqlx::Row as _;

use crate::connect::Shared;
use crate::values::{decode_error, unsigned};

/// How many due rows of one lane one statement moves to `ready`.
const PROMOTED_AT_ONCE: i32 = 1000;

/// The numbers of the lanes of these machines in a queue, in the order of the machines.
pub(crate) async fn lanes(
    shared: &Shared,
    queue: &QueueName,
    machines: &[MachineKey],
) -> Result<Vec<i32>, sqlx::Error> {
    let lanes = machines.iter().map(|machine| (queue, machine));
    shared.lanes.ids(shared, lanes).await
}

/// `None` when the worker is dead.
pub(crate) async fn claim(shared: &Shared, request: &ClaimRequest) -> Result<Option<Claimed>, sqlx::Error> {
    let lanes = lanes(shared, &request.queue, &request.machines).await?;
    let claimed = claim_once(shared, request, &lanes).await?;
    let due = |claimed: &Claimed| claimed.next_due == Some(Duration::ZERO);
    if !claimed.as_ref().is_some_and(due) {
        return Ok(claimed);
    }
    sqlx::query(shared.statements.promote.text())
        .bind(&lanes)
        .bind(vec![None::<i64>; lanes.len()])
        .bind(PROMOTED_AT_ONCE)
        .execute(&mut *shared.connection().await?)
        .await?;
    match claimed {
        // An empty claim left no row, so its number is still free.
        Some(claimed) if claimed.instances.is_empty() => claim_once(shared, request, &lanes).await,
        claimed => Ok(claimed),
    }
}

async fn claim_once(
    shared: &Shared,
    request: &ClaimRequest,
    lanes: &[i32],
) -> Result<Option<Claimed>, sqlx::Error> {
    let rows = sqlx::query(shared.statements.claim.text())
        .bind(request.worker.get())
        .bind(request.number.get())
        .bind(lanes)
        .bind(i64::try_from(request.limit).unwrap_or(i64::MAX))
        .bind(None::<Vec<i16>>)
        .bind(None::<Vec<i64>>)
        .bind(None::<Vec<i64>>)
        .bind(None::<Vec<i64>>)
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut claimed = Claimed::default();
    for row in rows {
        if !row.try_get::<bool, _>("alive")? {
            return Ok(None);
        }
        let due: Option<i64> = row.try_get("due_us")?;
        claimed.next_due = due.map(|due| Duration::from_micros(unsigned(due)));
        let Some(id) = row.try_get::<Option<i64>, _>("instance_id")? else {
            continue;
        };
        let lane: i32 = row.try_get("lane_id")?;
        let machine = lanes
            .iter()
            .position(|known| *known == lane)
            .ok_or(sqlx::Error::RowNotFound)?;
        claimed.instances.push(ClaimedInstance {
            id: InstanceId::new(id),
            fence: Fence {
                claim: request.number,
                seq: row.try_get("seq")?,
            },
            machine,
            step: row.try_get("step")?,
            state: Json::from_store(row.try_get("state")?),
            attempt: u32::try_from(row.try_get::<i32, _>("attempt")?).map_err(decode_error)?,
            crashes: u32::try_from(row.try_get::<i16, _>("crashes")?).map_err(decode_error)?,
        });
    }
    Ok(Some(claimed))
}
