//! A checkout that waits for its payment, which a payment service reports to a webhook, sometimes twice. The program
//! plays the service too.
//!
//! `DATABASE_URL=postgres://postgres@localhost/postgres cargo run -p durable-examples --example checkout_with_webhook`

use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use durable_core::{
    Context, Engine, Insert, Machine, SendSignal, StepResult, Target, await_signal, done, stop,
};
use durable_pg::{PgStore, sqlx};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Serialize, Deserialize)]
struct Checkout {
    order: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Place,
    Ship,
}

impl Machine for Checkout {
    const NAME: &'static str = "webhook_checkout";
    type Step = Step;
    type Result = String;

    fn first_step() -> Step {
        Step::Place
    }

    async fn step(self, step: Step, context: &Context) -> StepResult<Self> {
        let half_an_hour = Duration::from_secs(30 * 60);
        match step {
            Step::Place => await_signal("paid", Step::Ship, self).timeout(half_an_hour).ok(),
            Step::Ship if context.deadline_fired() => stop("nobody paid within half an hour").ok(),
            Step::Ship => {
                let payment: Payment = context.signal("paid")?;
                done(format!(
                    "order {} shipped, {} cents paid",
                    self.order, payment.cents
                ))
                .ok()
            }
        }
    }
}

/// What the payment service posts.
#[derive(Serialize, Deserialize)]
struct Payment {
    id: String,
    order: i64,
    cents: u64,
}

/// The handler of `POST /payments`: the shop's own row and the signal, both or neither. The service posts again until it
/// gets an answer, so both are safe to repeat.
async fn payment_received(State(store): State<PgStore>, Json(payment): Json<Payment>) -> StatusCode {
    match record(&store, &payment).await {
        Ok(true) => StatusCode::OK,
        Ok(false) => StatusCode::NOT_FOUND,
        Err(error) => {
            eprintln!("payment {}: {error:#}", payment.id);
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// Whether anybody waits for the payment, or has ever got it.
async fn record(store: &PgStore, payment: &Payment) -> anyhow::Result<bool> {
    let mut transaction = store.pool().begin().await?;
    let new = sqlx::query("INSERT INTO shop_payments (id) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(&payment.id)
        .execute(&mut *transaction)
        .await?;
    if new.rows_affected() == 0 {
        println!("payment {} came again", payment.id);
        return Ok(true);
    }
    let order = Target::key(format!("checkout-{}", payment.order))?;
    let signal = SendSignal::new(order, "paid", payment).deduplication_key(payment.id.clone());
    let sent = store.in_transaction(&mut transaction).send(signal).await?;
    if sent {
        transaction.commit().await?;
        println!("payment {} recorded", payment.id);
    }
    Ok(sent)
}

/// Plays the payment service: posts, and answers the status line.
async fn post_payment(address: std::net::SocketAddr, payment: &Payment) -> anyhow::Result<String> {
    let body = serde_json::to_string(payment)?;
    let request = format!(
        "POST /payments HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: \
         close\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let store = PgStore::connect(&durable_examples::database_url()?).await?;
    let tables = "CREATE TABLE IF NOT EXISTS shop_payments (id text PRIMARY KEY);
                  CREATE SEQUENCE IF NOT EXISTS shop_order_numbers";
    let made = sqlx::raw_sql(tables).execute(store.pool()).await;
    made.context("cannot make the table shop_payments")?;
    let order: i64 = sqlx::query_scalar("SELECT nextval('shop_order_numbers')")
        .fetch_one(store.pool())
        .await?;
    let engine = Engine::builder(store.clone())
        .queue("default")
        .machine::<Checkout>()
        .start()
        .await?;

    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let routes = Router::new()
        .route("/payments", post(payment_received))
        .with_state(store);
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let checkout = Insert::machine(Checkout { order }).correlation_key(format!("checkout-{order}"));
    let id = engine.client().insert(checkout).await?.id();
    let payment = Payment {
        id: format!("payment-of-{order}"),
        order,
        cents: 4200,
    };
    for _ in 0..2 {
        println!("the webhook answers {}", post_payment(address, &payment).await?);
    }
    let result: String = engine.client().result(id, Duration::from_secs(30)).await?;
    println!("{result}");
    engine.shutdown().await;
    Ok(())
}
