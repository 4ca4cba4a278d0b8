//! How a machine and a job are tested: a database of its own, a drain, and assertions.

use durable_core::{Client, Engine, EngineBuilder, Insert};
use durable_examples::shop::{Checkout, SendReceipt, Step};
use durable_pg::PgStore;
use durable_testing::{TestDatabase, assert_instance};

/// The engine of the shop, as the program would start it.
fn shop(store: &PgStore) -> EngineBuilder {
    Engine::builder(store.clone())
        .queue("default")
        .queue("mail")
        .machine::<Checkout>()
        .job::<SendReceipt>()
}

async fn store(database: &TestDatabase) -> PgStore {
    PgStore::connect(&database.url()).await.expect("connected")
}

#[tokio::test]
async fn an_order_is_charged_at_once_and_shipped_an_hour_later() {
    let database = TestDatabase::new().await.expect("a database");
    let store = store(&database).await;
    let client = Client::new(store.clone());
    let order = Insert::machine(Checkout::new(7)).correlation_key("order-7");
    let id = client.insert(order).await.expect("inserted").id();

    shop(&store).drain().due_only().await.expect("drained");
    assert_instance(&client, "order-7")
        .await
        .is_scheduled()
        .is_at_step(Step::Ship)
        .has_state(|checkout: &Checkout| checkout.payment.is_some());

    let tally = shop(&store).drain().await.expect("drained");
    assert_eq!(tally.steps_run(), 1);
    assert_instance(&client, id)
        .await
        .is_done_with(&"order 7 shipped".to_owned());
}

#[tokio::test]
async fn a_receipt_is_sent_on_the_second_try_and_never_for_no_order() {
    let database = TestDatabase::new().await.expect("a database");
    let store = store(&database).await;
    let client = Client::new(store.clone());
    let receipts = [0, 7].map(|order| Insert::job(SendReceipt { order }));
    let inserted = client.insert_all(receipts).await.expect("inserted");

    let tally = shop(&store).drain().await.expect("drained");
    assert_eq!((tally.count("retry"), tally.count("done")), (1, 1));
    assert_instance(&client, inserted[0].id())
        .await
        .is_cancelled_with("no order 0");
    assert_instance(&client, inserted[1].id())
        .await
        .is_done()
        .has_attempt(1);
}
