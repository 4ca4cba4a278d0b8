//! Processes that reach each other directly, and their secrets.

use std::sync::Arc;
use std::time::Duration;

use durable_core::Store;
use durable_core::store::{Meeting, Member, Serves};

use super::scene::{HOUR, queue};

fn member(id: u64, queues: &[&'static str]) -> Member {
    Member {
        id,
        version: 1,
        address: ([127, 0, 0, 1], 7400).into(),
        serves: Serves {
            queues: queues.iter().copied().map(queue).collect(),
            deadlines: true,
        },
    }
}

async fn meet(store: &Arc<dyn Store>, member: Member) -> Meeting {
    store.meet(member, HOUR).await.expect("met")
}

/// Each member learns of all others, as they said last that they are.
pub async fn members_learn_of_each_other(store: Arc<dyn Store>) {
    // contract: POKE-2
    let one = member(u64::MAX, &["b", "a"]);
    let other = member(7, &[]);
    assert_eq!(meet(&store, one.clone()).await.others, []);
    let met = meet(&store, other.clone()).await;
    assert_eq!(met.others, std::slice::from_ref(&one));
    let moved = Member {
        version: u64::MAX,
        address: "[2001:db8::1]:65535".parse().expect("an address"),
        serves: Serves::default(),
        ..one
    };
    let later = meet(&store, moved.clone()).await;
    assert_eq!(later.others, std::slice::from_ref(&other));
    assert!(later.clock > met.clock, "the store's clock goes on");
    assert_eq!(meet(&store, other).await.others, [moved]);
}

/// Who has gone, or was silent for too long, is not told of; who comes back is.
pub async fn members_that_went_or_fell_silent_are_not_told_of(store: Arc<dyn Store>) {
    // contract: POKE-2
    for id in 1..=3 {
        meet(&store, member(id, &["a"])).await;
    }
    store.part(1, 1).await.expect("gone");
    store.part(1, 1).await.expect("nothing to do");
    store.part(3, 0).await.expect("another version stays");
    assert_eq!(meet(&store, member(2, &["a"])).await.others, [member(3, &["a"])]);
    let met = store.meet(member(4, &[]), Duration::ZERO).await.expect("met");
    assert_eq!(met.others, [], "all were silent since");
    let met = meet(&store, member(2, &["a"])).await;
    assert_eq!(met.others, [member(4, &[])], "the silent were forgotten");
    assert_eq!(meet(&store, member(3, &[])).await.others.len(), 2, "it came back");
}

/// All members know the same secrets; a new one stands beside the old.
pub async fn secrets_are_shared_and_renewed(store: Arc<dyn Store>) {
    // contract: POKE-6
    let first = meet(&store, member(1, &[])).await.secrets;
    assert_eq!(first.len(), 1);
    assert_ne!(first[0].key, [0; 32]);
    let seen = meet(&store, member(2, &[])).await.secrets;
    assert_eq!((seen[0].number, seen[0].key), (first[0].number, first[0].key));
    store.renew_secret().await.expect("renewed");
    let both = meet(&store, member(2, &[])).await.secrets;
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].key, first[0].key);
    assert_ne!(both[1].key, first[0].key);
    assert!(both[0].number < both[1].number && both[0].age > both[1].age);
    let text = format!("{both:?}");
    assert!(!text.contains("key"), "no log shows a secret: {text}");
}
