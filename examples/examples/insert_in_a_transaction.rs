//! What a web server does with an order: its own row and the machine that works on it, both or neither.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres cargo run -p durable-examples --example insert_in_a_transaction`

use std::time::Duration;

use anyhow::Context as _;
use durable_core::{Client, Engine, Insert, InstanceId, Job, JobError};
use durable_pg::{PgStore, sqlx};
use serde::{Deserialize, Serialize};

/// Confirms an order that stands in the shop's own table.
#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl Job for Confirm {
    const NAME: &'static str = "confirm_order";
    type Output = String;

    async fn perform(&self, _context: &durable_core::Context) -> Result<String, JobError> {
        Ok(format!("order {} confirmed", self.order))
    }
}

/// The handler of `POST /orders`.
async fn place_order(store: &PgStore, item: &str) -> anyhow::Result<InstanceId> {
    // Your own pool would do as well, as long as it leads to the same database.
    let mut transaction = store.pool().begin().await?;
    let order: i64 = sqlx::query_scalar("INSERT INTO shop_orders (item) VALUES ($1) RETURNING id")
        .bind(item)
        .fetch_one(&mut *transaction)
        .await?;
    let confirm = Insert::job(Confirm { order }).correlation_key(format!("shop-order-{order}"));
    let inserted = store.in_transaction(&mut transaction).insert(confirm).await?;
    // From here on anything may fail: without the commit there is neither an order nor a job.
    anyhow::ensure!(!item.is_empty(), "an order needs an item");
    transaction.commit().await?;
    Ok(inserted.id())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = PgStore::connect(&durable_examples::database_url()?).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS shop_orders (id bigserial PRIMARY KEY, item text NOT NULL)")
        .execute(store.pool())
        .await
        .context("cannot make the table shop_orders")?;
    let engine = Engine::builder(store.clone())
        .queue("default")
        .job::<Confirm>()
        .start()
        .await?;
    let client: &Client = engine.client();

    let id = place_order(&store, "a lamp").await?;
    let answer: String = client.result(id, Duration::from_secs(10)).await?;
    println!("instance {id}: {answer}");

    match place_order(&store, "").await {
        Ok(id) => println!("instance {id} should not be there"),
        Err(error) => println!("refused, and nothing was written: {error}"),
    }
    engine.shutdown().await;
    Ok(())
}
