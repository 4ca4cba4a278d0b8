//! Claims batches, after moving to `ready` what has become due (rules CLAIM-1, CLAIM-2).

use std::time::{Duration, Instant};

use durable_core::store::{ClaimRequest, Claimed, ClaimedInstance};
use durable_core::{Fence, InstanceId, Json, MachineKey, QueueName};
use sqlx::postgres::PgRow;
use sqlx::{Row as _, ValueRef as _};

use crate::connect::Shared;
use crate::coordination::coordination;
use crate::limits::limits;
use crate::low_water::{Mark, Scanned, Start};
use crate::values::{decode_error, unsigned, visit};

/// How many due rows of one lane one statement moves to `ready`.
const PROMOTED_AT_ONCE: i32 = 1000;

/// When to look again at rows whose key somebody else had locked.
const CONTENDED: Duration = Duration::from_millis(2);

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
///
/// A batch of which nothing but rows that wait for a limit was left is followed by one without limits, so that work that
/// needs none never waits for a backlog that does (rule LIM-7); what is behind the backlog is looked at again at once.
pub(crate) async fn claim(shared: &Shared, request: &ClaimRequest) -> Result<Option<Claimed>, sqlx::Error> {
    let plain = lanes(shared, &request.queue, &request.machines).await?;
    let both: Vec<i32> = plain
        .iter()
        .copied()
        .chain(plain.iter().map(|lane| -lane))
        .collect();
    let Some(mut claimed) = claim_from(shared, request, &both).await? else {
        return Ok(None);
    };
    if claimed.set_aside == 0 {
        return Ok(Some(claimed));
    }
    if claimed.instances.is_empty() {
        // An empty claim left no row, so its number is still free.
        let set_aside = claimed.set_aside;
        let Some(unlimited) = claim_from(shared, request, &plain).await? else {
            return Ok(None);
        };
        claimed = Claimed {
            set_aside,
            ..unlimited
        };
    }
    claimed.next_due = Some(Duration::ZERO);
    Ok(Some(claimed))
}

async fn claim_from(
    shared: &Shared,
    request: &ClaimRequest,
    lanes: &[i32],
) -> Result<Option<Claimed>, sqlx::Error> {
    let start = shared.low_water.start(lanes, Instant::now());
    let due_from = start.as_ref().and_then(|(start, _)| start.scheduled);
    let claimed = match start {
        None => claim_once(shared, request, lanes, None).await?,
        Some((start, whole_again_in)) => {
            match claim_once(shared, request, lanes, Some(start)).await? {
                // There may be something in front of the marks. An empty claim left no row, so its number is
                // still free.
                Some(nothing) if nothing.instances.is_empty() && nothing.set_aside == 0 => {
                    claim_once(shared, request, lanes, None).await?
                }
                Some(mut claimed) => {
                    let next = claimed.next_due.unwrap_or(whole_again_in);
                    claimed.next_due = Some(next.min(whole_again_in));
                    Some(claimed)
                }
                None => None,
            }
        }
    };
    let due = |claimed: &Claimed| claimed.next_due == Some(Duration::ZERO);
    if !claimed.as_ref().is_some_and(due) {
        return Ok(claimed);
    }
    let promoted = promote(shared, lanes, due_from).await;
    match claimed {
        // An empty claim left no row, so its number is still free. What has become due may stand in front of
        // every mark.
        Some(claimed) if claimed.instances.is_empty() && claimed.set_aside == 0 => {
            promoted?;
            claim_once(shared, request, lanes, None).await
        }
        // What was claimed must not get lost because something else failed; the next claim promotes again.
        claimed => Ok(claimed),
    }
}

async fn promote(shared: &Shared, lanes: &[i32], due_from: Option<i64>) -> Result<(), sqlx::Error> {
    sqlx::query(shared.statements.promote.text())
        .bind(lanes)
        .bind(vec![due_from; lanes.len()])
        .bind(PROMOTED_AT_ONCE)
        .execute(&mut *shared.connection().await?)
        .await?;
    Ok(())
}

async fn claim_once(
    shared: &Shared,
    request: &ClaimRequest,
    lanes: &[i32],
    start: Option<Start>,
) -> Result<Option<Claimed>, sqlx::Error> {
    let marks = start.as_ref().map(|start| &start.ready);
    let rows = sqlx::query(shared.statements.claim.text())
        .bind(request.worker.get())
        .bind(request.number.get())
        .bind(lanes)
        .bind(i64::try_from(request.limit).unwrap_or(i64::MAX))
        .bind(marks.map(|marks| column(marks, |mark| mark.priority)))
        .bind(marks.map(|marks| column(marks, |mark| mark.eligible)))
        .bind(marks.map(|marks| column(marks, |mark| mark.instance)))
        .bind(start.as_ref().map(|start| vec![start.scheduled; lanes.len()]))
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut claimed = Claimed::default();
    let mut scanned = Scanned {
        took: Duration::ZERO,
        rows: rows.len(),
        last: vec![None; lanes.len()],
        due: None,
    };
    let mut contended = false;
    for row in rows {
        if !row.try_get::<bool, _>("alive")? {
            return Ok(None);
        }
        let due: Option<i64> = row.try_get("due_us")?;
        claimed.next_due = due.map(|due| Duration::from_micros(unsigned(due)));
        scanned.took = Duration::from_micros(unsigned(row.try_get("scan_us")?));
        scanned.due = server_time(&row, "due_at")?;
        claimed.set_aside = unsigned(row.try_get("set_aside")?);
        claimed.limits_version = row.try_get("limits_version")?;
        contended = row.try_get::<i64, _>("put_back")? > 0;
        let Some(id) = row.try_get::<Option<i64>, _>("instance_id")? else {
            continue;
        };
        let lane: i32 = row.try_get("lane_id")?;
        let at = lanes
            .iter()
            .position(|known| *known == lane)
            .ok_or(sqlx::Error::RowNotFound)?;
        if let (Some(last), Some(eligible)) = (scanned.last.get_mut(at), server_time(&row, "eligible_at")?) {
            *last = Some(Mark {
                priority: row.try_get("priority")?,
                eligible,
                instance: id,
            });
        }
        let (limits, gated) = limits(row.try_get("limits")?)?;
        claimed.instances.push(ClaimedInstance {
            id: InstanceId::new(id),
            fence: Fence {
                claim: request.number,
                seq: row.try_get("seq")?,
            },
            // The limited halves of the lanes follow the others, in the same order.
            machine: at % request.machines.len().max(1),
            step: row.try_get("step")?,
            state: Json::from_store(row.try_get("state")?),
            attempt: u32::try_from(row.try_get::<i32, _>("attempt")?).map_err(decode_error)?,
            crashes: u32::try_from(row.try_get::<i16, _>("crashes")?).map_err(decode_error)?,
            visit: visit(&row)?,
            coordination: coordination(row.try_get("coordination")?)?,
            limits,
            gated,
        });
    }
    if contended {
        // Rows whose key somebody else had locked for a moment stay ready, in front of the last one.
        claimed.next_due = Some(CONTENDED.min(claimed.next_due.unwrap_or(CONTENDED)));
    } else {
        let whole = start.is_none();
        shared.low_water.ended(lanes, whole, scanned, Instant::now());
    }
    Ok(Some(claimed))
}

/// One column of the marks, with an entry for each lane.
fn column<T>(marks: &[Option<Mark>], of: impl Fn(&Mark) -> T) -> Vec<Option<T>> {
    marks.iter().map(|mark| mark.as_ref().map(&of)).collect()
}

/// A time as the server sends it: microseconds since 2000. Never read as a date, so no crate for dates is
/// needed.
fn server_time(row: &PgRow, column: &str) -> Result<Option<i64>, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(None);
    }
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    Ok(Some(i64::from_be_bytes(bytes.try_into().map_err(decode_error)?)))
}
