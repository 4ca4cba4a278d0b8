//! Parks, deliveries and deadlines.

use std::time::Duration;

use durable_core::store::{Commit, CommitFate};
use durable_core::{SignalFate, Status};

use super::act::{Act, Answer, done, park, run};
use super::stage::{Meanwhile, ORDERS, Order, Stage};

const COMMITTED: Answer = Answer::Commit(CommitFate::Committed);

#[tokio::test]
async fn a_park_and_a_delivery() {
    // contract: SIG-2, SIG-1
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        let parks = Act::Commit(worker, Commit::of(&one, park(None)));
        let played = stage.play(order, parks, Act::Deliver(one.id, "paid")).await;
        let stored = Answer::Deliver(SignalFate::Stored(one.id));
        assert_eq!(
            (&played.first, &played.second),
            (&COMMITTED, &stored),
            "{order:?}"
        );
        match order {
            Order::SecondWhileFirst(_) => assert_eq!(played.meanwhile, Meanwhile::Waited),
            // A commit waits for nobody.
            Order::FirstWhileSecond(_) => assert_eq!(played.meanwhile, Meanwhile::SetAside),
            _ => {}
        }
        let stands = stage.snapshot(one.id).await;
        assert_eq!(
            (stands.status, stands.inbox.len()),
            (Status::Runnable, 1),
            "{order:?}"
        );
        stage.finish(&[one.id]).await;
    }
}

#[tokio::test]
async fn an_outcome_that_began_before_a_delivery_does_not_overlook_it() {
    // contract: SIG-2, SIG-1, OUT-4
    let stage = Stage::new().await;
    for (transition, status) in [(park(None), Status::Runnable), (done(), Status::Done)] {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        // What an outcome sees of the inbox is as old as this wait, which comes before the lock of its instance.
        let claim = format!("SELECT FROM durable.claims WHERE worker_id = {worker} FOR UPDATE");
        let commits = Act::Commit(worker, Commit::of(&one, transition));
        let (committed, delivered) = stage.behind(&claim, commits, Act::Deliver(one.id, "paid")).await;
        assert_eq!(committed, COMMITTED);
        assert_eq!(delivered, Answer::Deliver(SignalFate::Stored(one.id)));
        assert_eq!(stage.snapshot(one.id).await.status, status);
        stage.finish(&[one.id]).await;
    }
}

#[tokio::test]
async fn an_end_and_a_delivery() {
    // contract: SIG-1, OUT-4
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        let ends = Act::Commit(worker, Commit::of(&one, done()));
        let played = stage.play(order, ends, Act::Deliver(one.id, "paid")).await;
        assert_eq!(played.first, COMMITTED);
        let first = matches!(order, Order::FirstThenSecond | Order::SecondWhileFirst(_));
        let fate = if first {
            SignalFate::NoTarget
        } else {
            SignalFate::Stored(one.id)
        };
        assert_eq!(played.second, Answer::Deliver(fate), "{order:?}");
        stage.finish(&[one.id]).await;
    }
}

#[tokio::test]
async fn a_park_and_the_firing_of_deadlines() {
    // contract: SIG-2
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        // Another one is due, so that there is something to hold.
        let other = stage.executing(worker).await;
        stage.commit(worker, &other, park(Some(Duration::ZERO))).await;
        let one = stage.executing(worker).await;
        let parks = Act::Commit(worker, Commit::of(&one, park(Some(Duration::ZERO))));
        let played = stage.play(order, parks, Act::Expire).await;
        assert_eq!(played.first, COMMITTED);
        if !matches!(order, Order::FirstThenSecond | Order::SecondThenFirst) {
            assert_eq!(played.meanwhile, Meanwhile::Passed, "{order:?}");
        }
        let fired = if order == Order::FirstThenSecond { 2 } else { 1 };
        assert_eq!(played.second, Answer::Expire(fired), "{order:?}");
        if fired == 1 {
            let next = run(&stage.free, Act::Expire).await;
            assert_eq!(next, Answer::Expire(1), "the next round fires it");
        }
        let stands = stage.snapshot(one.id).await;
        assert_eq!((stands.status, stands.deadline_fired), (Status::Runnable, true));
        stage.finish(&[one.id, other.id]).await;
    }
}

#[tokio::test]
async fn a_delivery_and_the_firing_of_its_deadline() {
    // contract: SIG-2
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let one = stage.executing(worker).await;
        stage.commit(worker, &one, park(Some(Duration::ZERO))).await;
        let played = stage.play(order, Act::Deliver(one.id, "paid"), Act::Expire).await;
        assert_eq!(played.first, Answer::Deliver(SignalFate::Stored(one.id)));
        let delivered = matches!(order, Order::FirstThenSecond | Order::SecondWhileFirst(_));
        let expired = Answer::Expire(u64::from(!delivered));
        assert_eq!(played.second, expired, "{order:?}: exactly one of them wakes it");
        match order {
            // Who fires deadlines waits for nobody.
            Order::SecondWhileFirst(_) => assert_eq!(played.meanwhile, Meanwhile::Passed),
            Order::FirstWhileSecond(_) => assert_eq!(played.meanwhile, Meanwhile::Waited),
            _ => {}
        }
        let stands = stage.snapshot(one.id).await;
        assert_eq!(
            (stands.status, stands.inbox.len(), stands.deadline_fired),
            (Status::Runnable, 1, !delivered),
            "{order:?}"
        );
        stage.finish(&[one.id]).await;
    }
}
