//! Holders: leases, renewals, and what becomes of slots whose holder is gone.

use std::sync::Arc;
use std::time::Duration;

use durable_core::limiter::{Limiter, Renewed};

use super::scene::{HOUR, Scene, admit, admitted, gate, letters, slots_of};

/// A crash costs capacity only until the lease has ended.
pub async fn slots_of_a_holder_whose_lease_has_ended_are_had_back(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(3).shards(2);
    assert_eq!(scene.take(&gate, "a", 1).await, 1);
    let gone = scene.join("gone", Duration::ZERO).await;
    let requests = ["a", "a", "b"].map(|key| gate.of_key(key)).to_vec();
    assert_eq!(admitted(&admit(&*gone, requests).await), 3);

    let mut done = scene.maintain().await;
    done.freed.sort();
    assert_eq!(
        done.freed,
        ["a", "b"].map(|key| gate.gate_use(key).key),
        "each once"
    );
    assert_eq!(done.reconciled, 3);
    assert_eq!(
        scene.room(&gate, "a").await,
        2,
        "only those of the one that is gone"
    );
    assert_eq!(scene.room(&gate, "b").await, 3);
    assert_eq!(scene.take(&gate, "a", 3).await, 2);
    let again = scene.maintain().await;
    assert_eq!((again.freed, again.reconciled), (vec![], 0));
}

/// The slot is somebody else's by then.
pub async fn a_slot_that_was_had_back_is_not_given_back_again(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(2);
    let gone = scene.join("gone", Duration::ZERO).await;
    let lost = slots_of(&admit(&*gone, vec![gate.of_key("a"); 2]).await);
    scene.maintain().await;
    assert_eq!(scene.take(&gate, "a", 2).await, 2);
    gone.credit(lost.clone()).await.expect("it changes nothing");
    assert_eq!(scene.room(&gate, "a").await, 0);
    gone.renew().await.expect("renewed");
    gone.credit(lost).await.expect("it changes nothing");
    gone.leave().await.expect("left");
    assert_eq!(scene.room(&gate, "a").await, 0);
}

/// Whoever runs on a lost slot is told to stop, and those that were given back before are not named.
pub async fn a_renewal_says_what_is_lost_once(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(3);
    let gone = scene.join("gone", Duration::ZERO).await;
    let mut slots = slots_of(&admit(&*gone, vec![gate.of_key("a"); 3]).await);
    gone.credit(slots.split_off(2)).await.expect("given back");
    scene.maintain().await;
    let mut renewed = gone.renew().await.expect("renewed");
    renewed.lost.sort_by_key(|slot| slot.number);
    slots.sort_by_key(|slot| slot.number);
    assert_eq!(renewed.lost, slots);
    assert_eq!(gone.renew().await.expect("renewed"), Renewed::default());
}

/// It has nothing then, and is a holder as any other.
pub async fn a_holder_that_was_lost_goes_on_with_its_next_renewal(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(2);
    let gone = scene.join("gone", Duration::ZERO).await;
    let old = slots_of(&admit(&*gone, vec![gate.of_key("a"); 2]).await);
    scene.maintain().await;
    gone.renew().await.expect("renewed");
    let new = slots_of(&admit(&*gone, vec![gate.of_key("a"); 3]).await);
    assert_eq!(new.len(), 2);
    assert!(new.iter().all(|slot| !old.contains(slot)));
    gone.credit(old).await.expect("it changes nothing");
    assert_eq!(scene.room(&gate, "a").await, 0);
    gone.credit(new).await.expect("given back");
    assert_eq!(scene.room(&gate, "a").await, 2);
}

/// Repair and renewals take nothing from who is alive.
pub async fn a_live_holder_keeps_its_slots(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(2);
    let slots = scene.slots(&gate, "a", 2).await;
    for _ in 0..3 {
        assert_eq!(scene.maintain().await.reconciled, 0);
        assert_eq!(scene.holder.renew().await.expect("renewed"), Renewed::default());
        assert_eq!(scene.take(&gate, "a", 1).await, 0);
    }
    scene.credit(slots).await;
    assert_eq!(scene.room(&gate, "a").await, 2);
}

/// A renewal extends leases; it makes no slots.
pub async fn a_renewal_does_not_bring_back_what_was_given_back(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(3);
    let mut slots = scene.slots(&gate, "a", 3).await;
    scene.credit(slots.split_off(1)).await;
    scene.holder.renew().await.expect("renewed");
    assert_eq!(scene.room(&gate, "a").await, 2);
    assert_eq!(
        scene.usage(&gate, "a").await,
        (3, 2, vec![("first".to_owned(), 1)])
    );
}

/// A clean end costs nobody a lease.
pub async fn leaving_gives_everything_back(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(4).shards(3);
    let leaving = scene.join("leaving", HOUR).await;
    scene.take(&gate, "a", 1).await;
    let requests = ["a", "b", "a", "b"].map(|key| gate.of_key(key)).to_vec();
    assert_eq!(letters(&admit(&*leaving, requests).await), "aaaa");
    leaving.leave().await.expect("left");
    assert_eq!(
        scene.usage(&gate, "a").await,
        (4, 3, vec![("first".to_owned(), 1)])
    );
    assert_eq!(scene.room(&gate, "b").await, 4);
    leaving.leave().await.expect("leaving again does nothing");
    assert_eq!(scene.room(&gate, "a").await, 3);
}

/// Nobody would ever have such a slot back.
pub async fn a_holder_that_has_left_admits_nothing(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(1);
    let leaving = scene.join("leaving", HOUR).await;
    leaving.leave().await.expect("left");
    assert!(leaving.admit(vec![gate.of_key("a")]).await.is_err());
    assert_eq!(scene.take(&gate, "a", 1).await, 1);
}
