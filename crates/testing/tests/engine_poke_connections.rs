//! Connections for pokes that are cut, or go deaf without anybody being told, under paused time.

use durable_core::Insert;
use durable_testing::MemoryPokes;
use durable_testing::memory::MemoryStore;
use tokio::time::Instant;

use crate::engine_pokes::{AT_ONCE, Errand, HOUR, MINUTE, SECOND, process, starts, until_started, web};
use crate::engine_rules::client;

#[tokio::test(start_paused = true)]
async fn a_transport_that_comes_back_is_followed_by_a_look() {
    // contract: POKE-5
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let errands = process(&store, "errands", pokes.node()).await;
    let web = web(&store, &pokes).await;
    pokes.cut();
    let id = web
        .insert(Insert::machine(Errand::Quick))
        .await
        .expect("inserted")
        .id();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(starts(id), 0, "nobody could tell");
    let health = &errands.client().poke_health()[0];
    assert!(!health.connected && health.last_error.is_some(), "{health:?}");
    let refused = pokes.refused();
    assert!(
        (10..=80).contains(&refused),
        "{refused} tries of two processes in a minute: the pauses grow"
    );
    // The local leg works meanwhile, and so finds the other, too.
    let started = Instant::now();
    let own = errands
        .client()
        .insert(Insert::machine(Errand::Quick))
        .await
        .expect("inserted")
        .id();
    errands.client().result::<()>(own, HOUR).await.expect("done");
    assert!(started.elapsed() < AT_ONCE);
    until_started(id).await;
    let unseen = store.in_another_process();
    let id = client(&unseen)
        .insert(Insert::machine(Errand::Quick))
        .await
        .expect("inserted")
        .id();
    pokes.restore();
    web.result::<()>(id, HOUR).await.expect("done");
    assert!(started.elapsed() < SECOND * 8, "{:?}", started.elapsed());
    assert!(errands.client().poke_health()[0].connected);
    // Nobody has anything left to tell: that it is connected again must be enough.
    tokio::time::sleep(SECOND * 10).await;
    pokes.cut();
    tokio::time::sleep(SECOND).await;
    let unheard = Insert::machine(Errand::Quick);
    let id = client(&unseen).insert(unheard).await.expect("inserted").id();
    let started = Instant::now();
    pokes.restore();
    web.result::<()>(id, HOUR).await.expect("done");
    assert!(started.elapsed() < SECOND * 8, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connection_over_which_nothing_comes_back_is_given_up() {
    // contract: POKE-5
    let (store, pokes) = (MemoryStore::new(), MemoryPokes::new());
    let errands = process(&store, "errands", pokes.node()).await;
    let health = || errands.client().poke_health().remove(0);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(health().connections, 1, "an idle connection is none that is lost");
    let unseen = client(&store.in_another_process());
    pokes.lose(true);
    let id = unseen.insert(Insert::machine(Errand::Quick)).await;
    let id = id.expect("inserted").id();
    let started = Instant::now();
    while health().last_error.is_none() {
        tokio::time::sleep(AT_ONCE).await;
    }
    pokes.lose(false);
    until_started(id).await;
    assert!(
        started.elapsed() < SECOND * 45,
        "the new connection begins with a look: {:?}",
        started.elapsed()
    );
    let connections = health().connections;
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(health().connections, connections, "and it holds");
}
