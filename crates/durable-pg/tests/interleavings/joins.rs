//! Fan-outs and joins.

use durable_core::store::{Commit, CommitFate};
use durable_core::{Status, Store as _};

use super::act::{Act, Answer, done, run, spawn};
use super::stage::{Meanwhile, ORDERS, Order, Stage};

#[tokio::test]
async fn a_fan_out_and_the_taking_back_of_its_claim() {
    // contract: CHILD-1, CLAIM-4, LEASE-5
    let stage = Stage::new().await;
    for order in ORDERS {
        let worker = stage.worker().await;
        let parent = stage.executing(worker).await;
        stage.free.declare_dead(vec![worker]).await.expect("declared");
        let spawns = Act::Commit(worker, Commit::of(&parent, spawn(2)));
        let played = stage.play(order, spawns, Act::Reap).await;
        let spawned = matches!(order, Order::FirstThenSecond | Order::SecondWhileFirst(_));
        let (fate, reaped) = if spawned {
            (CommitFate::Committed, 0)
        } else {
            (CommitFate::Stale, 1)
        };
        assert_eq!(
            (&played.first, &played.second),
            (&Answer::Commit(fate), &Answer::Reap(reaped)),
            "{order:?}"
        );
        match order {
            // A reaper waits for nobody.
            Order::SecondWhileFirst(_) => assert_eq!(played.meanwhile, Meanwhile::Passed),
            Order::FirstWhileSecond(_) => assert_eq!(played.meanwhile, Meanwhile::Waited),
            _ => {}
        }
        let stands = stage.snapshot(parent.id).await;
        let expected = if spawned {
            Status::AwaitingChildren
        } else {
            Status::Runnable
        };
        assert_eq!(stands.status, expected, "{order:?}");
        let children = stage
            .free
            .unfinished_children(vec![parent.id])
            .await
            .expect("read");
        assert_eq!(
            children.len(),
            if spawned { 2 } else { 0 },
            "{order:?}: all or none"
        );
        stage.finish(&[parent.id]).await;
    }
}

#[tokio::test]
async fn the_last_two_children_end_on_two_nodes() {
    // contract: CHILD-1, CHILD-3
    let stage = Stage::new().await;
    for order in ORDERS {
        let (one, two) = (stage.worker().await, stage.worker().await);
        let parent = stage.executing(one).await;
        stage.commit(one, &parent, spawn(2)).await;
        let first = stage.claim(one, 1).await.remove(0);
        let second = stage.claim(two, 1).await.remove(0);
        let ends = |worker, child| Act::Commit(worker, Commit::of(child, done()));
        let played = stage.play(order, ends(one, &first), ends(two, &second)).await;
        let committed = Answer::Commit(CommitFate::Committed);
        assert_eq!(
            (&played.first, &played.second),
            (&committed, &committed),
            "{order:?}"
        );
        if !matches!(order, Order::FirstThenSecond | Order::SecondThenFirst) {
            assert_eq!(played.meanwhile, Meanwhile::SetAside, "{order:?}");
        }
        let stands = stage.snapshot(parent.id).await;
        assert_eq!(
            stands.status,
            Status::Runnable,
            "{order:?}: nobody lost the count"
        );
        let woken = run(&stage.free, Act::Claim(stage.claiming(one, 10))).await;
        assert_eq!(woken, Answer::Claim(vec![parent.id]), "{order:?}: woken once");
        stage.finish(&[parent.id, first.id, second.id]).await;
    }
}
