//! A cancellation against everything that it can meet.

use std::time::Duration;

use durable_core::store::{Commit, CommitFate, OperationFate};
use durable_core::{InstanceId, SignalFate, Status, Store as _};

use super::act::{Act, Answer, done, park, run, spawn};
use super::stage::{Meanwhile, ORDERS, Order, Played, Stage};

/// Whether the cancellation, which is the second, came first.
fn cancelled_first(order: Order) -> bool {
    matches!(order, Order::SecondThenFirst | Order::FirstWhileSecond(_))
}

fn applied(id: InstanceId) -> Answer {
    Answer::Operation(OperationFate::Applied(id))
}

fn check(order: Order, played: &Played, expected: &(Answer, Answer), meanwhile: [Meanwhile; 2]) {
    assert_eq!(
        (&played.first, &played.second),
        (&expected.0, &expected.1),
        "{order:?}"
    );
    match order {
        Order::SecondWhileFirst(_) => assert_eq!(played.meanwhile, meanwhile[0], "{order:?}"),
        Order::FirstWhileSecond(_) => assert_eq!(played.meanwhile, meanwhile[1], "{order:?}"),
        _ => {}
    }
}

async fn ends_cancelled(stage: &Stage, id: InstanceId) {
    stage.finish(&[id]).await;
    assert_eq!(stage.snapshot(id).await.status, Status::Cancelled);
}

#[tokio::test]
async fn a_cancellation_and_a_park() {
    // contract: CANCEL-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        let parks = Act::Commit(worker, Commit::of(&one, park(None)));
        let played = stage.play(order, parks, Act::Cancel(one.id)).await;
        let expected = if cancelled_first(order) {
            let requested = Answer::Operation(OperationFate::Requested(one.id));
            (Answer::Commit(CommitFate::CancelRequested), requested)
        } else {
            (Answer::Commit(CommitFate::Committed), applied(one.id))
        };
        check(
            order,
            &played,
            &expected,
            [Meanwhile::Waited, Meanwhile::SetAside],
        );
        ends_cancelled(&stage, one.id).await;
    }
}

#[tokio::test]
async fn a_cancellation_and_an_end() {
    // contract: CANCEL-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        let ends = Act::Commit(worker, Commit::of(&one, done()));
        let played = stage.play(order, ends, Act::Cancel(one.id)).await;
        let meanwhile = [Meanwhile::Waited, Meanwhile::SetAside];
        if cancelled_first(order) {
            let requested = Answer::Operation(OperationFate::Requested(one.id));
            let expected = (Answer::Commit(CommitFate::CancelRequested), requested);
            check(order, &played, &expected, meanwhile);
            ends_cancelled(&stage, one.id).await;
        } else {
            let unchanged = Answer::Operation(OperationFate::Unchanged(one.id, Status::Done));
            let expected = (Answer::Commit(CommitFate::Committed), unchanged);
            check(order, &played, &expected, meanwhile);
            stage.finish(&[one.id]).await;
            assert_eq!(stage.snapshot(one.id).await.status, Status::Done);
        }
    }
}

#[tokio::test]
async fn a_cancellation_and_a_delivery() {
    // contract: CANCEL-1, SIG-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        stage.commit(worker, &one, park(None)).await;
        let played = stage
            .play(order, Act::Deliver(one.id, "paid"), Act::Cancel(one.id))
            .await;
        let fate = if cancelled_first(order) {
            SignalFate::NoTarget
        } else {
            SignalFate::Stored(one.id)
        };
        let expected = (Answer::Deliver(fate), applied(one.id));
        check(order, &played, &expected, [Meanwhile::Waited; 2]);
        assert_eq!(stage.snapshot(one.id).await.status, Status::Cancelled, "at once");
        ends_cancelled(&stage, one.id).await;
    }
}

#[tokio::test]
async fn a_cancellation_and_the_firing_of_a_deadline() {
    // contract: CANCEL-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        stage.commit(worker, &one, park(Some(Duration::ZERO))).await;
        let played = stage.play(order, Act::Expire, Act::Cancel(one.id)).await;
        let expected = (
            Answer::Expire(u64::from(!cancelled_first(order))),
            applied(one.id),
        );
        check(order, &played, &expected, [Meanwhile::Waited, Meanwhile::Passed]);
        assert_eq!(stage.snapshot(one.id).await.status, Status::Cancelled, "at once");
        ends_cancelled(&stage, one.id).await;
    }
}

#[tokio::test]
async fn a_cancellation_and_a_claim() {
    // contract: CANCEL-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let id = stage.insert().await;
        let claims = Act::Claim(stage.claiming(worker, 10));
        let played = stage.play(order, claims, Act::Cancel(id)).await;
        let expected = if cancelled_first(order) {
            (Answer::Claim(Vec::new()), applied(id))
        } else {
            (
                Answer::Claim(vec![id]),
                Answer::Operation(OperationFate::Requested(id)),
            )
        };
        // A claim waits for nobody.
        check(order, &played, &expected, [Meanwhile::Waited, Meanwhile::Passed]);
        ends_cancelled(&stage, id).await;
    }
}

#[tokio::test]
async fn a_cancellation_and_the_taking_back_of_a_claim() {
    // contract: CANCEL-1, LEASE-5
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        stage.free.declare_dead(vec![worker]).await.expect("declared");
        let played = stage.play(order, Act::Reap, Act::Cancel(one.id)).await;
        match order {
            Order::FirstThenSecond | Order::SecondWhileFirst(_) => {
                check(
                    order,
                    &played,
                    &(Answer::Reap(1), applied(one.id)),
                    [Meanwhile::Waited; 2],
                );
            }
            Order::SecondThenFirst | Order::FirstWhileSecond(_) => {
                let reaped = u64::from(order == Order::SecondThenFirst);
                let requested = Answer::Operation(OperationFate::Requested(one.id));
                check(
                    order,
                    &played,
                    &(Answer::Reap(reaped), requested),
                    [Meanwhile::Passed; 2],
                );
            }
        }
        ends_cancelled(&stage, one.id).await;
    }
}

#[tokio::test]
async fn a_cancellation_of_a_parent_and_the_end_of_its_last_child() {
    // contract: CANCEL-1, CHILD-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let parent = stage.executing(worker).await;
        stage.commit(worker, &parent, spawn(1)).await;
        let child = stage.claim(worker, 1).await.remove(0);
        let ends = Act::Commit(worker, Commit::of(&child, done()));
        let played = stage.play(order, ends, Act::Cancel(parent.id)).await;
        let expected = (Answer::Commit(CommitFate::Committed), applied(parent.id));
        check(
            order,
            &played,
            &expected,
            [Meanwhile::Waited, Meanwhile::SetAside],
        );
        assert_eq!(
            stage.snapshot(parent.id).await.status,
            Status::Cancelled,
            "{order:?}"
        );
        assert_eq!(stage.snapshot(child.id).await.status, Status::Done, "{order:?}");
        ends_cancelled(&stage, parent.id).await;
    }
}

#[tokio::test]
async fn a_cancellation_of_one_of_the_last_two_children_and_the_end_of_the_other() {
    // contract: CANCEL-2, CHILD-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let parent = stage.executing(worker).await;
        stage.commit(worker, &parent, spawn(2)).await;
        let child = stage.claim(worker, 1).await.remove(0);
        let children = stage
            .free
            .unfinished_children(vec![parent.id])
            .await
            .expect("read");
        let other = children
            .into_iter()
            .find(|id| *id != child.id)
            .expect("two children");
        let ends = Act::Commit(worker, Commit::of(&child, done()));
        let played = stage.play(order, ends, Act::Cancel(other)).await;
        let expected = (Answer::Commit(CommitFate::Committed), applied(other));
        check(
            order,
            &played,
            &expected,
            [Meanwhile::Waited, Meanwhile::SetAside],
        );
        let woken = run(&stage.free, Act::Claim(stage.claiming(worker, 10))).await;
        assert_eq!(
            woken,
            Answer::Claim(vec![parent.id]),
            "{order:?}: woken, and once"
        );
        stage.finish(&[parent.id, child.id, other]).await;
    }
}

#[tokio::test]
async fn two_cancellations() {
    // contract: CANCEL-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        stage.commit(worker, &one, park(None)).await;
        let played = stage.play(order, Act::Cancel(one.id), Act::Cancel(one.id)).await;
        let unchanged = Answer::Operation(OperationFate::Unchanged(one.id, Status::Cancelled));
        let expected = if cancelled_first(order) {
            (unchanged, applied(one.id))
        } else {
            (applied(one.id), unchanged)
        };
        check(order, &played, &expected, [Meanwhile::Waited; 2]);
        ends_cancelled(&stage, one.id).await;
    }
}
