//! Gates: at most so many at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use durable_core::LimitKind;
use durable_core::limiter::{Admission, Limiter};

use super::scene::{HOUR, Scene, admit, gate, letters, slots_of};

/// The first that fit are admitted, in order; the others are told that the gate has no room.
pub async fn a_gate_admits_as_many_as_it_has_slots(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(3);
    assert_eq!(scene.room(&gate, "a").await, 3, "a key that was never used");
    let answers = scene.admit(vec![gate.of_key("a"); 5]).await;
    assert_eq!(letters(&answers), "aaagg");
    let denied = Admission::Denied {
        by: LimitKind::Gate,
        look_in: None,
    };
    assert_eq!(answers[3..], [denied.clone(), denied]);
    for slot in slots_of(&answers) {
        assert_eq!(slot.gate, gate.gate_use("a").key);
    }
    assert_eq!(scene.room(&gate, "a").await, 0);
    assert_eq!(scene.take(&gate, "a", 1).await, 0);
}

/// Each slot that comes back lets one more in.
pub async fn a_slot_that_is_given_back_is_free_again(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(4);
    let mut slots = scene.slots(&gate, "a", 4).await;
    scene.credit(slots.split_off(2)).await;
    assert_eq!(scene.room(&gate, "a").await, 2);
    assert_eq!(scene.take(&gate, "a", 4).await, 2);
    scene.credit(slots).await;
    assert_eq!(scene.take(&gate, "a", 4).await, 2);
}

/// The same slot again, in the same call or a later one, frees nothing.
pub async fn a_slot_is_given_back_once(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(3);
    let slots = scene.slots(&gate, "a", 3).await;
    let first = slots[0].clone();
    scene.credit(vec![first.clone(), first.clone()]).await;
    scene.credit(vec![first.clone()]).await;
    scene.credit(vec![]).await;
    assert_eq!(scene.room(&gate, "a").await, 1);
    assert_eq!(scene.take(&gate, "a", 3).await, 1);
    scene.credit(vec![first]).await;
    assert_eq!(scene.room(&gate, "a").await, 0, "not the slot of who came after");
}

/// A full key denies nobody of another one.
pub async fn each_key_of_a_gate_has_slots_of_its_own(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(1);
    let order = ["a", "b", "a", "c", "b"];
    let answers = scene.admit(order.map(|key| gate.of_key(key)).to_vec()).await;
    assert_eq!(letters(&answers), "aagag");
    for slot in slots_of(&answers) {
        if slot.gate == gate.gate_use("b").key {
            scene.credit(vec![slot]).await;
        }
    }
    let answers = scene.admit(order.map(|key| gate.of_key(key)).to_vec()).await;
    assert_eq!(letters(&answers), "gaggg");
}

/// What one has, another has not; and what one gives back, another gets.
pub async fn all_holders_share_one_gate(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let second = scene.join("second", HOUR).await;
    let gate = gate(3);
    let mine = scene.slots(&gate, "a", 2).await;
    let answers = admit(&*second, vec![gate.of_key("a"); 2]).await;
    assert_eq!(letters(&answers), "ag");
    scene.credit(mine).await;
    let answers = admit(&*second, vec![gate.of_key("a"); 3]).await;
    assert_eq!(letters(&answers), "aag");
}

/// A slot can be told from every other one that the same holder has ever had.
pub async fn slots_of_one_holder_never_have_the_same_number(limiter: Arc<dyn Limiter>) {
    let scene = Scene::new(limiter).await;
    let gate = gate(100).shards(3);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let mut slots = scene.slots(&gate, "a", 70).await;
        slots.extend(scene.slots(&gate, "b", 5).await);
        assert_eq!(slots.len(), 75);
        for slot in &slots {
            assert!(seen.insert(slot.number), "{} was given twice", slot.number);
        }
        scene.credit(slots).await;
    }
    assert_eq!(scene.room(&gate, "a").await, 100);
}

/// Nothing asked, nothing answered.
pub async fn an_empty_call_does_nothing(limiter: Arc<dyn Limiter>) {
    let scene = Scene::new(limiter).await;
    assert_eq!(scene.admit(vec![]).await, []);
    assert_eq!(scene.limiter.room(vec![]).await.expect("read"), Vec::<u32>::new());
    assert_eq!(scene.limiter.usage(vec![]).await.expect("read"), []);
    scene.credit(vec![]).await;
}

/// People see how much there is, how much is left, and who has the rest.
pub async fn usage_tells_who_holds_how_many(limiter: Arc<dyn Limiter>) {
    let scene = Scene::new(limiter).await;
    let gate = gate(5);
    assert_eq!(scene.usage(&gate, "a").await, (5, 5, vec![]), "never used");
    let second = scene.join("second", HOUR).await;
    let mut slots = scene.slots(&gate, "a", 2).await;
    admit(&*second, vec![gate.of_key("a"), gate.of_key("b")]).await;
    let holders = |first, second| vec![("first".to_owned(), first), ("second".to_owned(), second)];
    assert_eq!(scene.usage(&gate, "a").await, (5, 2, holders(2, 1)));
    scene.credit(slots.split_off(1)).await;
    assert_eq!(scene.usage(&gate, "a").await, (5, 3, holders(1, 1)));
    scene.credit(slots).await;
    let left = vec![("second".to_owned(), 1)];
    assert_eq!(scene.usage(&gate, "a").await, (5, 4, left.clone()));
    assert_eq!(scene.usage(&gate, "b").await, (5, 4, left));
}
