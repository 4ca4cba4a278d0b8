//! Values of the core as the driver takes them, and back.

use std::time::Duration;

use durable_core::QueueName;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

pub(crate) fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The column `visit`: NULL is 0.
pub(crate) fn visit(row: &PgRow) -> Result<u32, sqlx::Error> {
    let visit: Option<i32> = row.try_get("visit")?;
    u32::try_from(visit.unwrap_or(0)).map_err(decode_error)
}

/// The names of queues, in order, each once.
pub(crate) fn queues(mut names: Vec<String>) -> Result<Vec<QueueName>, sqlx::Error> {
    names.sort_unstable();
    names.dedup();
    let checked = names
        .into_iter()
        .map(|name| QueueName::new(name).map_err(decode_error));
    checked.collect()
}

/// For what the database holds and the core cannot read.
pub(crate) fn decode_error(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}
