//! Takes back claims: those of dead workers, and those that a worker gives back (rules LEASE-2, CLAIM-6).

use durable_core::ConcurrencyKey;
use durable_core::store::Reaped;
use sqlx::Row as _;

use crate::connect::Shared;
use crate::limits::freed;
use crate::values::{decode_error, unsigned};

/// How many claims one round of the reaper looks at. Far more than are taken back: claims of which only rows
/// are left that a caller's transaction holds must not keep the others from being seen.
const CLAIMS_AT_ONCE: usize = 1000;

/// What a taking back did.
pub(crate) struct TakenBack {
    pub(crate) instances: u64,
    /// How many claims are gone.
    pub(crate) claims: u64,
    /// The concurrency keys that are free now, and that others wait for.
    pub(crate) freed: Vec<ConcurrencyKey>,
}

/// Returns what is left of these claims to runnable.
pub(crate) async fn take_back(
    shared: &Shared,
    workers: Vec<i64>,
    numbers: Vec<i64>,
    attempts: i16,
) -> Result<TakenBack, sqlx::Error> {
    let row = sqlx::query(shared.statements.take_back.text())
        .bind(workers)
        .bind(numbers)
        .bind(attempts)
        .fetch_one(&mut *shared.connection().await?)
        .await?;
    Ok(TakenBack {
        instances: unsigned(row.try_get("instances")?),
        claims: unsigned(row.try_get("claims")?),
        freed: freed(row.try_get("freed")?)?,
    })
}

pub(crate) async fn reap(shared: &Shared, limit: usize) -> Result<Reaped, sqlx::Error> {
    let dead = sqlx::query(shared.statements.mark_dead.text())
        .fetch_one(&mut *shared.connection().await?)
        .await?;
    let mut reaped = Reaped {
        workers: unsigned(dead.try_get("declared")?),
        ..Reaped::default()
    };
    if !dead.try_get::<bool, _>("any_dead")? {
        return Ok(reaped);
    }
    let rows = sqlx::query(shared.statements.dead_claims.text())
        // One more than is taken, to know whether any is left.
        .bind(i64::try_from(CLAIMS_AT_ONCE + 1).map_err(decode_error)?)
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let (mut workers, mut numbers, mut named) = (Vec::new(), Vec::new(), 0_usize);
    for row in rows.iter().take(CLAIMS_AT_ONCE) {
        if named >= limit {
            break;
        }
        workers.push(row.try_get::<i64, _>("worker_id")?);
        numbers.push(row.try_get::<i64, _>("number")?);
        named += usize::try_from(row.try_get::<i32, _>("instances")?).map_err(decode_error)?;
    }
    let left = rows.len() > numbers.len();
    if !numbers.is_empty() {
        let back = take_back(shared, workers, numbers, 1).await?;
        reaped.instances = back.instances;
        reaped.freed = back.freed;
        // Without progress the rest is locked: nothing to do at once.
        reaped.more = left && back.instances + back.claims > 0;
    }
    if let Err(error) = sqlx::query(shared.statements.delete_dead_workers.text())
        .execute(&mut *shared.connection().await?)
        .await
    {
        // A claim came in at the last moment; the next round takes it back.
        if !error
            .as_database_error()
            .is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation)
        {
            return Err(error);
        }
    }
    Ok(reaped)
}
