//! What the template database is filled with.

use sqlx::PgPool;

/// Names the state that [`run`] leads to: a template with another fingerprint is stale.
pub(super) fn fingerprint() -> String {
    // wire: durable_pg::migrate::fingerprint()
    "none".to_owned()
}

/// Brings an empty database to that state.
#[allow(clippy::unused_async, reason = "until it is wired")]
pub(super) async fn run(_pool: &PgPool) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // wire: durable_pg::migrate::run(pool, "durable").await?
    Ok(())
}
