//! The histories themselves: they reach what matters, find what differs, and say it briefly.

use std::sync::Arc;

use durable_core::Store;
use durable_core::store::Transition;
use durable_testing::histories::{Call, Settings, check, generate};
use durable_testing::memory::{self, MemoryStore};

async fn model() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

#[tokio::test]
async fn the_model_agrees_with_itself_and_the_histories_reach_every_answer() {
    // contract: INS-3, ID-2, CLAIM-1, CLAIM-4, LEASE-2, OUT-3, OUT-4, OPS-3, SIG-1, SIG-3, CHILD-1, CANCEL-3, RUN-1
    let reached = match check(Settings::default(), model, model).await {
        Ok(reached) => reached,
        Err(disagreement) => panic!("{disagreement}"),
    };
    for (call, words) in [
        ("insert", &["new", "duplicate", "refused"][..]),
        (
            "claim",
            &[
                "second", "dead", "some", "nothing", "ahead", "woken", "joined", "awaits", "signal",
                "received", "child", "sees", "fired",
            ],
        ),
        (
            "commit",
            &["Committed", "Stale", "CancelRequested", "refused", "woke"],
        ),
        ("deliver", &["stored", "duplicate", "no", "woke"]),
        (
            "operate",
            &["applied", "requested", "unchanged", "duplicate", "found", "woke"],
        ),
        ("expire", &["woke", "later", "nothing"]),
        (
            "settlements",
            &["busy", "parked", "done", "failed", "cancelled", "removed"],
        ),
        ("unfinished_children", &["0", "1"]),
        ("resolve", &["Committed", "NotCommitted", "Lost"]),
        ("beat", &["alive", "dead", "must"]),
        (
            "snapshots",
            &[
                "runnable",
                "executing",
                "done",
                "failed",
                "cancelled",
                "removed",
                "later",
                "holds",
                "awaiting",
                "awaits",
                "signal",
                "child",
                "waits",
                "due",
                "fired",
                "must",
            ],
        ),
        ("find", &["nothing"]),
        ("reap", &["0", "1"]),
        ("collect", &["0", "1", "2"]),
        ("make_due", &["0", "1", "2"]),
    ] {
        for word in words {
            let count = reached.count(call, word);
            assert!(count >= 10, "{call} answered \"{word}\" {count} times only");
        }
    }
    assert_eq!(reached.count("commit", "error"), 0);
}

#[tokio::test]
async fn a_store_that_differs_is_found_and_the_history_is_short() {
    // contract: OUT-2
    let broken = async || {
        let store = MemoryStore::new();
        store
            .faults()
            .refuse_commits(|commit| matches!(commit.transition, Transition::Cancelled { .. }));
        let store: Arc<dyn Store> = Arc::new(store);
        store
    };
    let disagreement = check(Settings::default(), model, broken)
        .await
        .expect_err("every cancellation is refused");
    let names: Vec<_> = disagreement.history.iter().map(Call::name).collect();
    assert_eq!(names, ["insert", "claim", "commit"], "{disagreement}");
    assert_eq!(disagreement.subject, "refused");
    let text = disagreement.to_string();
    for part in ["DURABLE_HISTORY_SEED=", "Cancelled", "store: refused", "model: "] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[tokio::test]
async fn a_difference_that_only_a_look_at_all_instances_shows_ends_with_that_look() {
    // contract: INS-3
    let broken = async || {
        let store = MemoryStore::new();
        store.faults().fail_next(memory::Call::Snapshots);
        let store: Arc<dyn Store> = Arc::new(store);
        store
    };
    let disagreement = check(Settings::default(), model, broken)
        .await
        .expect_err("the first look fails");
    assert_eq!(disagreement.history, [Call::Snapshots], "{disagreement}");
}

#[test]
fn a_seed_is_a_history() {
    // contract: INS-3
    assert_eq!(generate(7, 40), generate(7, 40));
    assert_ne!(generate(7, 40), generate(8, 40));
}
