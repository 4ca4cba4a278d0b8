//! What assertions say when they fail.

use std::time::Duration;

use durable_core::{Client, Context, Engine, Insert, Job, JobError, Scope};
use durable_testing::{MemoryStore, assert_instance};
use serde::{Deserialize, Serialize};
use tokio::task;

/// Fails on its first try; is done with its number on the second.
#[derive(Serialize, Deserialize)]
struct Parcel {
    number: u64,
}

impl Job for Parcel {
    const NAME: &'static str = "parcel";
    type Output = u64;

    async fn perform(&self, context: &Context) -> Result<u64, JobError> {
        match (self.number, context.attempt()) {
            (0, _) => Err(JobError::cancel("there is no parcel 0")),
            (_, 0) => Err("the van is full".into()),
            (number, _) => Ok(number),
        }
    }
}

async fn parcels(numbers: [u64; 2]) -> (Client, MemoryStore) {
    let store = MemoryStore::new();
    let client = Client::new(store.clone());
    for number in numbers {
        let parcel = Insert::job(Parcel { number })
            .correlation_key(format!("parcel-{number}"))
            .scope(Scope::UNTIL_REMOVED);
        client.insert(parcel).await.expect("inserted");
    }
    (client, store)
}

/// The message of the panic of a check.
async fn message(check: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = task::spawn(check).await.expect_err("it fails").into_panic();
    *panic.downcast::<String>().expect("a formatted message")
}

#[tokio::test]
async fn a_failed_check_shows_the_whole_instance() {
    let (client, store) = parcels([1, 2]).await;
    Engine::builder(store.clone())
        .queue("default")
        .job::<Parcel>()
        .drain()
        .due_only()
        .await
        .expect("drained");
    let parcel = assert_instance(&client, "parcel-1").await;
    let id = parcel.snapshot().id;
    parcel
        .is_scheduled()
        .is_at_step("perform")
        .has_attempt(1)
        .has_failure("van is full")
        .has_state(|parcel: &Parcel| parcel.number == 1);
    let text = message(async move {
        parcel.is_done();
    })
    .await;
    for part in [
        format!("instance {id} should be done"),
        "machine: parcel v1, queue default".to_owned(),
        "status:  runnable, due in ".to_owned(),
        "step:    perform, attempt 1, crashes 0".to_owned(),
        "failure: Error: the van is full".to_owned(),
        "key:     parcel-1".to_owned(),
        r#"state:   {"number":1}"#.to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is missing in {text}");
    }
}

#[tokio::test]
async fn each_check_holds_or_says_what_it_expected() {
    let (client, store) = parcels([0, 7]).await;
    Engine::builder(store.clone())
        .queue("default")
        .job::<Parcel>()
        .drain()
        .await
        .expect("drained");
    let cancelled = assert_instance(&client, "parcel-0").await;
    cancelled.is_cancelled_with("no parcel 0");
    let done = assert_instance(&client, "parcel-7").await;
    done.is_done_with(&7_u64).is_at_step("perform");
    assert_eq!((done.state::<Parcel>().number, done.result::<u64>()), (7, 7));

    type Check = fn(&durable_testing::AssertInstance);
    let checks: [(Check, &str); 12] = [
        (
            |it| {
                it.is_done_with(&8_u64);
            },
            "should be done with 8",
        ),
        (
            |it| {
                it.is_done_with(&String::new());
            },
            "should have a result that fits",
        ),
        (
            |it| {
                it.is_failed();
            },
            "should be failed",
        ),
        (
            |it| {
                it.is_failed_with("x");
            },
            "should be failed",
        ),
        (
            |it| {
                it.is_cancelled();
            },
            "should be cancelled",
        ),
        (
            |it| {
                it.is_cancelled_with("x");
            },
            "should be cancelled",
        ),
        (
            |it| {
                it.is_due();
            },
            "should be runnable",
        ),
        (
            |it| {
                it.is_scheduled();
            },
            "should be runnable",
        ),
        (
            |it| {
                it.is_at_step("other");
            },
            "should be at step other",
        ),
        (
            |it| {
                it.has_attempt(9);
            },
            "should be at attempt 9",
        ),
        (
            |it| {
                it.has_failure("x");
            },
            "should have a failure that says \"x\"",
        ),
        (
            |it| {
                it.has_state(|_: &Parcel| false);
            },
            "that passes the given check",
        ),
    ];
    for (check, expected) in checks {
        let done = done.clone();
        let text = message(async move { check(&done) }).await;
        assert!(
            text.contains(expected) && text.contains("status:  done"),
            "{expected}: {text}"
        );
    }
    let text = message(async move {
        let _: u64 = cancelled.result();
    })
    .await;
    assert!(text.contains("should have a result"), "{text}");
}

#[tokio::test]
async fn what_is_due_and_what_waits_are_told_apart() {
    let (client, _store) = parcels([1, 2]).await;
    let later = Insert::job(Parcel { number: 3 }).run_in(Duration::from_secs(60));
    let later = client.insert(later).await.expect("inserted").id();
    assert_instance(&client, "parcel-1").await.is_due();
    let later = assert_instance(&client, later).await;
    later.is_scheduled();
    assert!(
        message(async move {
            later.is_due();
        })
        .await
        .contains("should be due")
    );
    let due = assert_instance(&client, "parcel-1").await;
    let text = message(async move {
        due.is_scheduled();
    })
    .await;
    assert!(
        text.contains("should wait for its time") && text.contains("due now"),
        "{text}"
    );
}

#[tokio::test]
async fn an_instance_that_is_not_there_is_named_with_the_place_of_the_assertion() {
    let (client, _store) = parcels([1, 2]).await;
    let text = message(async move {
        assert_instance(&client, "parcel-9").await;
    })
    .await;
    assert!(
        text.contains("assertions.rs") && text.contains("\"parcel-9\""),
        "{text}"
    );
}
