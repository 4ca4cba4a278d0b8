//! Many holders at once, on one runtime: what one of them takes, no other has. Sharded and not.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use durable_core::limiter::{Limiter, SlotHolder};
use tokio::task::JoinSet;

use super::scene::{HOUR, Scene, admit, admitted, fixed, gate, slots_of};

const RACERS: u16 = 8;

/// Runs the same in as many tasks, each with a holder of its own.
async fn race<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    scene: &Scene,
    run: impl Fn(u16, Arc<dyn SlotHolder>) -> W,
) -> Vec<T> {
    let mut racers = JoinSet::new();
    for number in 0..RACERS {
        let holder = scene.join(&format!("racer {number}"), HOUR).await;
        racers.spawn(run(number, holder));
    }
    racers.join_all().await
}

/// The ledger of those who are inside never shows more than the gate has slots.
pub async fn racing_holders_never_have_more_than_the_slots(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2, LIM-5
    let scene = Scene::new(limiter).await;
    for shards in [1, 3] {
        let gate = gate(5).shards(shards);
        let key = format!("over {shards}");
        let inside = Arc::new(std::sync::atomic::AtomicI64::new(0));
        let most = race(&scene, |number, holder| {
            let (gate, key, inside) = (gate.clone(), key.clone(), Arc::clone(&inside));
            async move {
                let mut most = 0;
                for round in 0..20 {
                    let ask = usize::from((number + round) % 3 + 1);
                    let slots = slots_of(&admit(&*holder, vec![gate.of_key(&key); ask]).await);
                    let count = i64::try_from(slots.len()).expect("few");
                    let others = inside.fetch_add(count, std::sync::atomic::Ordering::SeqCst);
                    most = most.max(others + count);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(count, std::sync::atomic::Ordering::SeqCst);
                    holder.credit(slots).await.expect("given back");
                }
                most
            }
        })
        .await;
        assert!(most.iter().all(|most| *most <= 5), "{most:?}");
        assert_eq!(scene.room(&gate, &key).await, 5, "all came back");
    }
}

/// Exactly the burst, whoever mints the key.
pub async fn racing_holders_spend_each_token_once(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3, LIM-5, LIM-6
    let scene = Scene::new(limiter).await;
    for shards in [1, 5] {
        let rate = fixed(5).shards(shards);
        let name = move |number: usize| format!("{number} over {shards}");
        let taken = race(&scene, |number, holder| {
            let rate = rate.clone();
            async move {
                let mut taken = BTreeMap::new();
                for turn in 0..30 {
                    // Each in an order of its own, so that all meet at cold keys.
                    let key = name((turn * 7 + usize::from(number) * 11) % 30);
                    let count = admitted(&admit(&*holder, vec![rate.of_key(&key); 10]).await);
                    *taken.entry(key).or_insert(0) += count;
                }
                taken
            }
        })
        .await;
        for number in 0..30 {
            let key = name(number);
            let sum: usize = taken.iter().map(|taken| taken[&key]).sum();
            assert_eq!(sum, 5, "of {key}");
            assert_eq!(scene.room(&rate, &key).await, 0);
        }
    }
}

/// Calls that hold many keys, in opposite orders, end; and leave nothing that somebody was denied.
pub async fn racing_calls_with_many_keys_take_all_there_is(limiter: Arc<dyn Limiter>) {
    // contract: LIM-4, LIM-5
    let scene = Scene::new(limiter).await;
    let (gate, rate) = (gate(2).shards(2), fixed(9).shards(3));
    let admitted = race(&scene, |number, holder| {
        let (gate, rate) = (gate.clone(), rate.clone());
        async move {
            let mut keys: Vec<_> = (0..10).map(|key| format!("key {key}")).collect();
            if number % 2 == 0 {
                keys.reverse();
            }
            let requests = keys.iter().map(|key| gate.and(key, rate.rate_use(key, 2)));
            let mut requests: Vec<_> = requests.collect();
            requests.extend(keys.iter().map(|key| rate.of_key(key)));
            let mut count = 0;
            for _ in 0..2 {
                let answers = admit(&*holder, requests.clone()).await;
                count += slots_of(&answers).len();
            }
            count
        }
    })
    .await;
    assert_eq!(admitted.iter().sum::<usize>(), 20, "{admitted:?}: each slot once");
    for key in 0..10 {
        assert_eq!(scene.room(&gate, &format!("key {key}")).await, 0);
        // Nobody but the two with a slot took two; 8 racers asked 16 times for one of the others.
        assert_eq!(scene.room(&rate, &format!("key {key}")).await, 0);
    }
}

/// Slots come back once, by their holder or by the repair, whoever is first.
pub async fn credits_race_with_the_end_of_a_lease(limiter: Arc<dyn Limiter>) {
    // contract: LIM-2
    let scene = Scene::new(limiter).await;
    let gate = gate(6).shards(2);
    for _ in 0..10 {
        let gone = scene.join("gone", Duration::ZERO).await;
        let slots = slots_of(&admit(&*gone, vec![gate.of_key("a"); 3]).await);
        let kept = scene.slots(&gate, "a", 3).await;
        assert_eq!((slots.len(), kept.len()), (3, 3));
        let credit = tokio::spawn(async move {
            for slot in slots {
                gone.credit(vec![slot]).await.expect("given back, or lost");
            }
            gone.renew().await.expect("renewed");
        });
        let limiter = Arc::clone(&scene.limiter);
        let repair = tokio::spawn(async move { limiter.maintain(10).await.expect("maintained") });
        credit.await.expect("no panic");
        repair.await.expect("no panic");
        assert_eq!(scene.room(&gate, "a").await, 3);
        scene.credit(kept).await;
        assert_eq!(scene.room(&gate, "a").await, 6);
    }
}
