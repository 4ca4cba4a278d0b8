//! What the template database is filled with.

use sqlx::PgPool;

/// Names the state that [`run`] leads to: a template with another fingerprint is stale.
pub(super) fn fingerprint() -> String {
    durable_pg::migrate::fingerprint()
}

/// Brings an empty database to that state.
pub(super) async fn run(pool: &PgPool) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut connection = pool.acquire().await?;
    durable_pg::migrate::run(&mut connection, "durable").await?;
    Ok(())
}
