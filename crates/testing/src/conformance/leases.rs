//! Workers: beats, leases, deaths, and who is next to whom.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Beat, ClaimRequest, NewInstance, Survey};
use durable_core::{MachineKey, ProcessIdentity, Status, Store, WorkerId};

use super::scene::{HOUR, Scene, alive, assert_dead, done, entry, later, machine, queue};

/// A worker learns of claims whose answer it never got, and of no claim of another.
pub async fn a_beat_lists_the_open_claims(store: Arc<dyn Store>) {
    // contract: CLAIM-6, LEASE-1
    let scene = Scene::new(store).await;
    let other = scene.register(HOUR, None).await;
    scene.insert_plain(4).await;
    assert_eq!(scene.beat(scene.worker, HOUR).await, alive(&[]));
    let (first, second) = (scene.claim(1).await, scene.claim(2).await);
    scene.claim_by(other, 1).await;
    let numbers = [first[0].fence.claim, second[0].fence.claim];
    let both = alive(&numbers);
    assert_eq!(scene.beat(scene.worker, HOUR).await, both);
    scene.commit(&first, done()).await;
    assert_eq!(
        scene.beat(scene.worker, HOUR).await,
        both,
        "open until it is closed"
    );
    scene.commit_all(scene.worker, Vec::new(), vec![numbers[0]]).await;
    scene.release(vec![numbers[1]]).await;
    assert_eq!(scene.beat(scene.worker, HOUR).await, alive(&[]));
}

/// Nobody beats for a worker that the store does not know.
pub async fn a_worker_that_is_not_there_is_dead(store: Arc<dyn Store>) {
    // contract: LEASE-4
    let scene = Scene::new(store).await;
    scene.insert_plain(1).await;
    let nobody = WorkerId::new(scene.worker.get() + 1000);
    assert_eq!(scene.beat(nobody, HOUR).await, Beat::Dead);
    let request = ClaimRequest {
        worker: nobody,
        ..scene.ask(1)
    };
    assert_dead(&scene.store.claim(request).await);
    scene.store.retire(nobody).await.expect("nothing to retire");
    scene.declare_dead(nobody).await;
    assert_eq!(scene.reap_all(10).await.workers, 0);
    assert_eq!(scene.beat(scene.worker, HOUR).await, alive(&[]));
}

/// Death is for ever, and known at once: to a beat, and to a claim.
pub async fn a_worker_that_was_declared_dead_claims_nothing(store: Arc<dyn Store>) {
    // contract: LEASE-4, LEASE-3
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let other = scene.register(HOUR, None).await;
    scene.declare_dead(scene.worker).await;
    scene.declare_dead(scene.worker).await;
    assert_dead(&scene.store.claim(scene.ask(1)).await);
    assert_eq!(scene.beat(scene.worker, HOUR).await, Beat::Dead);
    scene.reap_all(10).await;
    assert_dead(&scene.store.claim(scene.ask(1)).await);
    assert_eq!(scene.beat(scene.worker, HOUR).await, Beat::Dead);
    assert_eq!(scene.standing(id).await, (Status::Runnable, 0, 0));
    assert_eq!(scene.claim_by(other, 1).await.len(), 1);
}

/// The reaper takes from workers whose lease is over, and from nobody else.
pub async fn only_a_lease_that_ended_costs_the_work(store: Arc<dyn Store>) {
    // contract: LEASE-1, LEASE-2
    let scene = Scene::new(store).await;
    let inserted = scene.insert_plain(2).await;
    scene.claim(1).await;
    // Over as soon as it began: the store still lets it claim, as nobody has declared it dead.
    let ended = scene.register(Duration::ZERO, None).await;
    scene.claim_by(ended, 1).await;
    let reaped = scene.reap_all(10).await;
    assert_eq!((reaped.workers, reaped.instances), (1, 1));
    assert_eq!(scene.standing(inserted[0]).await, (Status::Executing, 0, 0));
    assert_eq!(scene.standing(inserted[1]).await, (Status::Runnable, 1, 1));
    assert_eq!(scene.beat(ended, HOUR).await, Beat::Dead);
    assert!(matches!(scene.beat(scene.worker, HOUR).await, Beat::Alive { .. }));
}

/// A lease that is over ends nothing by itself: a late beat that comes before the reaper saves the work.
pub async fn a_beat_before_the_reaper_keeps_the_lease(store: Arc<dyn Store>) {
    // contract: LEASE-1, LEASE-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let late = scene.register(Duration::ZERO, None).await;
    scene.claim_by(late, 1).await;
    assert!(matches!(scene.beat(late, HOUR).await, Beat::Alive { .. }));
    let reaped = scene.reap_all(10).await;
    assert_eq!((reaped.workers, reaped.instances), (0, 0));
    assert_eq!(scene.standing(id).await, (Status::Executing, 0, 0));
    assert!(matches!(
        scene.beat(late, Duration::ZERO).await,
        Beat::Alive { .. }
    ));
    let reaped = scene.reap_all(10).await;
    assert_eq!(
        (reaped.workers, reaped.instances),
        (1, 1),
        "a beat may shorten the lease too"
    );
}

/// Workers that the same process table tells about, with what tells them apart; neither the dead, nor those
/// of another boot or namespace, nor those that do not say.
pub async fn neighbours_are_the_live_workers_of_one_process_table(store: Arc<dyn Store>) {
    // contract: LEASE-3
    let scene = Scene::new(store).await;
    let process = |boot: &str, namespace: &str, pid| ProcessIdentity {
        boot: boot.to_owned(),
        namespace: namespace.to_owned(),
        pid,
        started: 1,
    };
    let (one, two) = (process("boot", "namespace", 1), process("boot", "namespace", 2));
    let first = scene.register(HOUR, Some(one.clone())).await;
    scene.register(HOUR, Some(process("other", "namespace", 1))).await;
    scene.register(HOUR, Some(process("boot", "other", 1))).await;
    let second = scene.register(Duration::ZERO, Some(two.clone())).await;
    let dead = scene.register(HOUR, Some(process("boot", "namespace", 3))).await;
    scene.declare_dead(dead).await;
    let neighbours = scene.store.neighbours(one.clone()).await;
    let mut neighbours = neighbours.expect("listed");
    neighbours.sort_by_key(|(id, _)| *id);
    assert_eq!(neighbours, [(first, one.clone()), (second, two)]);
    scene.store.retire(first).await.expect("retired");
    let neighbours = scene.store.neighbours(one).await.expect("listed");
    assert_eq!(neighbours.len(), 1);
}

/// A clean end removes the worker; one that still holds claims stays, so that they are not forgotten.
pub async fn only_a_worker_without_claims_retires(store: Arc<dyn Store>) {
    // contract: OPS-2, LEASE-2
    let scene = Scene::new(store).await;
    let id = scene.insert_plain(1).await[0];
    let claimed = scene.claim(1).await;
    scene.store.retire(scene.worker).await.expect("answered");
    assert!(matches!(scene.beat(scene.worker, HOUR).await, Beat::Alive { .. }));
    scene.release(vec![claimed[0].fence.claim]).await;
    scene.store.retire(scene.worker).await.expect("retired");
    assert_eq!(scene.beat(scene.worker, HOUR).await, Beat::Dead);
    assert_dead(&scene.store.claim(scene.ask(1)).await);
    assert_eq!(scene.standing(id).await, (Status::Runnable, 0, 0));
}

/// A survey counts only live workers, and only machines with work that is ready, in the queues asked for.
pub async fn a_survey_tells_of_maintenance_and_of_unknown_machines(store: Arc<dyn Store>) {
    // contract: FSM-5, OPS-1
    let scene = Scene::new(store).await;
    let survey = || async {
        let known: Arc<[_]> = Arc::new([entry().machine, machine("unused", 1)]);
        let survey = scene
            .store
            .survey(vec![queue("default"), queue("mail")], known)
            .await;
        survey.expect("surveyed")
    };
    let everything = Survey {
        reaper: true,
        collector: true,
        unknown: Vec::new(),
    };
    scene.insert_plain(1).await;
    assert_eq!(survey().await, everything);
    let of = |machine, queue| NewInstance {
        machine,
        queue,
        ..entry()
    };
    let newer = MachineKey::new(entry().machine.name().to_owned(), 7).expect("valid");
    scene
        .insert(vec![
            of(newer.clone(), queue("mail")),
            of(newer.clone(), queue("elsewhere")),
            NewInstance {
                machine: machine("future", 1),
                ..later()
            },
        ])
        .await;
    let unknown = vec![(queue("mail"), newer)];
    assert_eq!(
        survey().await,
        Survey {
            unknown: unknown.clone(),
            ..everything
        }
    );
    scene.declare_dead(scene.worker).await;
    let nobody = Survey {
        unknown,
        ..Survey::default()
    };
    assert_eq!(survey().await, nobody, "the dead maintain nothing");
}
