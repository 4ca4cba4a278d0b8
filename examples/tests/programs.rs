//! The example programs run, and say what they should.

use std::process::Command;

use durable_testing::TestDatabase;

/// Runs an example on a database of its own, and gives what it printed.
async fn run(example: &str) -> String {
    let database = TestDatabase::new().await.expect("a database");
    // As the head of each example says; cargo builds it first where a test run has not.
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "-p", "durable-examples", "--example", example]);
    command.env("DATABASE_URL", database.url());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.expect("joined").expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{example}: {said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkout_is_paid_once_however_often_the_webhook_is_called() {
    let said = run("checkout_with_webhook").await;
    for line in [
        "payment payment-of-1 recorded",
        "payment payment-of-1 came again",
        "the webhook answers HTTP/1.1 200 OK",
        "order 1 shipped, 4200 cents paid",
    ] {
        assert!(
            said.lines().any(|of| of == line),
            "no line \"{line}\" in:\n{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_goes_without_the_region_that_failed() {
    // Ten times the sum of 1 to 200, without 13.
    assert_eq!(
        run("fan_out_report").await.trim(),
        "200 regions sold 200870, 1 missing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expense_is_approved_escalated_or_cancelled() {
    let said = run("human_approval").await;
    for line in [
        "the chair approved by Ada",
        "nobody answered about the desk: asking the boss",
        "the desk approved by the boss",
    ] {
        assert!(
            said.lines().any(|of| of == line),
            "no line \"{line}\" in:\n{said}"
        );
    }
    assert!(said.contains("not with our money"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_smaller_programs_end_well() {
    for (example, says) in [
        ("first_machine", "order 7 shipped"),
        ("insert_in_a_transaction", "refused, and nothing was written"),
    ] {
        let said = run(example).await;
        assert!(said.contains(says), "{example}: {said}");
    }
}
