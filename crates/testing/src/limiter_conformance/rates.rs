//! Rate limits: at most so many starts per period.

use std::sync::Arc;
use std::time::Duration;

use durable_core::LimitKind;
use durable_core::limiter::{Admission, Limit, Limiter};
use tokio::time::{Instant, sleep};

use super::scene::{HOUR, Policy, Scene, admitted, fixed, is_admitted, letters, slow};

/// A first use admits at once, as much as the burst.
pub async fn a_new_key_has_its_whole_burst(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3, LIM-6
    let scene = Scene::new(limiter).await;
    let rate = slow(5);
    assert_eq!(scene.room(&rate, "a").await, 5);
    let answers = scene.admit(vec![rate.of_key("a"); 7]).await;
    assert_eq!(letters(&answers), "aaaaarr");
    assert!(
        answers[..5]
            .iter()
            .all(|answer| *answer == Admission::Admitted(None))
    );
    assert_eq!(scene.take(&rate, "b", 7).await, 5, "each key has its own");
    assert_eq!(scene.room(&rate, "a").await, 0);
    assert_eq!(scene.usage(&rate, "a").await, (5, 0, vec![]));
}

/// Whoever leaves, the tokens stay spent.
pub async fn tokens_are_never_given_back(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = fixed(3);
    let gate = super::scene::gate(9);
    let passing = scene.join("passing", Duration::ZERO).await;
    let both = vec![gate.and("a", rate.rate_use("a", 1)); 2];
    assert_eq!(letters(&passing.admit(both).await.expect("decided")), "aa");
    scene.maintain().await;
    passing.leave().await.expect("left");
    assert_eq!(scene.room(&gate, "a").await, 9);
    assert_eq!(scene.room(&rate, "a").await, 1);
}

/// A request takes what it weighs, all or nothing.
pub async fn a_weight_takes_so_many_tokens(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = slow(10);
    let answers = scene.admit(vec![rate.weighing("a", 4); 3]).await;
    assert_eq!(letters(&answers), "aar");
    assert_eq!(scene.room(&rate, "a").await, 2);
    let answers = scene.admit(vec![rate.weighing("a", 2)]).await;
    assert_eq!(letters(&answers), "a");
    let all = scene.admit(vec![rate.weighing("b", 10), rate.of_key("b")]).await;
    assert_eq!(letters(&all), "ar");
}

/// Once a key has denied somebody, all later ones of the call wait behind.
pub async fn a_light_request_does_not_overtake_a_heavy_one_of_its_key(limiter: Arc<dyn Limiter>) {
    // contract: LIM-7
    let scene = Scene::new(limiter).await;
    let rate = slow(10);
    let requests = [7, 4, 1, 3].map(|weight| rate.weighing("a", weight));
    let mut requests = requests.to_vec();
    requests.insert(2, rate.weighing("b", 4));
    assert_eq!(letters(&scene.admit(requests).await), "ararr");
    assert_eq!(scene.room(&rate, "a").await, 3);
}

/// Such a request can never be served, so that nothing must wait for it.
pub async fn a_weight_above_the_burst_is_too_heavy_and_holds_up_nothing(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = slow(3);
    let weights = [4, 2, u32::MAX, 1, 4, 1];
    let answers = scene
        .admit(weights.map(|weight| rate.weighing("a", weight)).to_vec())
        .await;
    assert_eq!(letters(&answers), "hahahr");
    assert_eq!(answers[0], Admission::TooHeavy { burst: 3 });
}

/// What is spent comes back, a token at a time, and no faster than it may.
pub async fn tokens_come_back_with_time(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = Policy::of(Limit::rate(1, Duration::from_millis(5)).burst(2));
    let begun = Instant::now();
    let mut taken = 0;
    while taken < 8 {
        let answers = scene.admit(vec![rate.of_key("a"); 3]).await;
        assert!(
            admitted(&answers) <= 2,
            "more than the burst at once: {answers:?}"
        );
        taken += admitted(&answers);
        let refilled = begun.elapsed().as_micros() / 5000;
        assert!(taken as u128 <= 2 + refilled, "{taken} after {refilled} more");
        if admitted(&answers) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// However long nobody comes, a bucket holds no more than its burst.
pub async fn more_than_the_burst_is_never_kept(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = Policy::of(Limit::rate(1000, Duration::from_millis(1)).burst(3)).shards(2);
    for _ in 0..3 {
        assert_eq!(scene.take(&rate, "a", 9).await, 3);
        scene.wait_for_room(&rate, "a", 3).await;
        sleep(Duration::from_millis(2)).await;
        assert_eq!(scene.room(&rate, "a").await, 3);
    }
}

/// A denial carries the time until there is enough for the first that was denied, and then there is.
pub async fn a_denial_says_when_to_look_again(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = Policy::of(Limit::rate(1, Duration::from_millis(40)).burst(3));
    let answers = scene.admit(vec![rate.weighing("a", 3); 2]).await;
    let Admission::Denied {
        by: LimitKind::Rate,
        look_in: Some(look_in),
    } = answers[1]
    else {
        panic!("{answers:?}");
    };
    assert!(look_in <= Duration::from_millis(120), "{look_in:?}");
    // A clock of a server may be a little behind ours.
    sleep(look_in + Duration::from_millis(5)).await;
    let answers = scene.admit(vec![rate.weighing("a", 3)]).await;
    assert!(is_admitted(&answers[0]), "{answers:?}");

    let rate = slow(10);
    let weights = [10, 5].map(|weight| rate.weighing("b", weight));
    let answers = scene.admit(weights.to_vec()).await;
    let Admission::Denied {
        look_in: Some(look_in),
        ..
    } = answers[1]
    else {
        panic!("{answers:?}");
    };
    assert!(look_in <= HOUR / 2 && look_in > HOUR / 4, "{look_in:?}");
}

/// There is nothing to wait for.
pub async fn a_rate_of_zero_never_refills(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = fixed(2);
    let answers = scene.admit(vec![rate.of_key("a"); 3]).await;
    let denied = Admission::Denied {
        by: LimitKind::Rate,
        look_in: None,
    };
    assert_eq!(answers[2], denied);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(scene.take(&rate, "a", 1).await, 0);
}

/// Looks in between, which see less than a whole token each, lose nothing of it.
pub async fn a_slow_rate_is_counted_to_the_fraction(limiter: Arc<dyn Limiter>) {
    // contract: LIM-3
    let scene = Scene::new(limiter).await;
    let rate = Policy::of(Limit::rate(3, Duration::from_millis(100)).burst(100)).shards(3);
    let before = Instant::now();
    assert_eq!(scene.take(&rate, "a", 200).await, 100);
    let mut taken = 0;
    let spent = Instant::now();
    while taken < 9 {
        taken += scene.take(&rate, "a", 1).await;
        sleep(Duration::from_millis(1)).await;
        let most = before.elapsed().as_micros() * 3 / 100_000;
        assert!(taken as u128 <= most, "{taken} of {most}");
    }
    let least = spent.elapsed().as_micros() * 3 / 100_000;
    let room = u128::from(scene.room(&rate, "a").await);
    assert!(
        taken as u128 + room >= least.min(100),
        "{taken} and {room} of {least}"
    );
}
