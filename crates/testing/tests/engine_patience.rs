//! Rows that somebody else holds: nobody waits for them, and they are had one day.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use durable_core::store::Transition;
use durable_core::{
    Client, Context, Engine, Insert, InstanceId, Job, JobError, Machine, Settled, Status, StepResult,
    WaitError, done, schedule_children,
};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};

use crate::engine_rules::{builder, client, snapshot, until};

const HOUR: Duration = Duration::from_secs(3600);

/// Takes ten seconds, or no time.
#[derive(Serialize, Deserialize)]
struct Errand {
    slow: bool,
}

fn errand(slow: bool) -> Insert<()> {
    Insert::job(Errand { slow })
}

impl Job for Errand {
    const NAME: &'static str = "errand";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        if self.slow {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        Ok(())
    }
}

/// Schedules one child, with a correlation key or without.
#[derive(Serialize, Deserialize)]
struct Parent {
    key: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum ParentStep {
    Split,
    Join,
}

static SPLITS: AtomicU32 = AtomicU32::new(0);

impl Machine for Parent {
    const NAME: &'static str = "parent";
    type Step = ParentStep;
    type Result = usize;

    fn first_step() -> ParentStep {
        ParentStep::Split
    }

    async fn step(self, step: ParentStep, context: &Context) -> StepResult<Self> {
        if matches!(step, ParentStep::Join) {
            return done(context.children().len()).ok();
        }
        SPLITS.fetch_add(1, Ordering::SeqCst);
        let child = errand(false);
        let child = match &self.key {
            Some(key) => child.correlation_key(key.clone()),
            None => child,
        };
        schedule_children(ParentStep::Join, self).child(child).ok()
    }
}

async fn engine(store: &MemoryStore) -> Engine {
    let builder = builder(store).queue("default").job::<Errand>();
    let builder = builder.machine::<Parent>();
    builder.start().await.expect("started")
}

async fn until_executing(client: &Client, id: InstanceId) {
    while snapshot(client, id).await.status != Status::Executing {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_row_that_is_held_and_it_is_had_in_the_end() {
    // contract: OUT-6, SIG-5
    let store = MemoryStore::new();
    let faults = store.faults();
    let (client, engine) = (client(&store), engine(&store).await);
    let mut held: Vec<InstanceId> = Vec::new();
    for _ in 0..2 {
        let id = client.insert(errand(true)).await.expect("inserted").id();
        until_executing(&client, id).await;
        faults.lock(id);
        held.push(id);
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    let before = faults.calls(Call::Commit);
    for _ in 0..20 {
        let id = client.insert(errand(false)).await.expect("inserted").id();
        let started = tokio::time::Instant::now();
        client.result::<()>(id, HOUR).await.expect("done");
        assert_eq!(
            started.elapsed(),
            Duration::ZERO,
            "its commit waits for no row of another"
        );
    }
    // One of two that wait is free: the other does not keep it back.
    faults.unlock(held[0]);
    client.result::<()>(held[0], HOUR).await.expect("done");
    assert_eq!(snapshot(&client, held[1]).await.status, Status::Executing);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tries = faults.calls(Call::Commit) - before;
    assert!(
        tries <= 20 + 2 * (600 + 20),
        "{tries} commits: a busy row is tried about once per second, not in a loop"
    );
    faults.unlock(held[1]);
    client.result::<()>(held[1], HOUR).await.expect("done");
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_outcomes_whose_row_is_held() {
    // contract: OUT-6, OPS-2
    let store = MemoryStore::new();
    let faults = store.faults();
    let (client, engine) = (client(&store), engine(&store).await);
    let id = client.insert(errand(true)).await.expect("inserted").id();
    until_executing(&client, id).await;
    faults.lock(id);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let shutdown = tokio::spawn(engine.shutdown());
    tokio::time::sleep(Duration::from_secs(2)).await;
    faults.unlock(id);
    shutdown.await.expect("shut down");
    assert_eq!(snapshot(&client, id).await.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn children_with_keys_wait_for_those_keys_alone() {
    // contract: OUT-6, CHILD-1
    let store = MemoryStore::new();
    let faults = store.faults();
    let (client, engine) = (client(&store), engine(&store).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.hold(Call::Commit);
    let keyed = Parent {
        key: Some("errand-1".to_owned()),
    };
    let keyed = client
        .insert(Insert::machine(keyed))
        .await
        .expect("inserted")
        .id();
    until("it wants to commit", || faults.calls(Call::Commit) == 1).await;
    let plain = Parent { key: None };
    let plain = client
        .insert(Insert::machine(plain))
        .await
        .expect("inserted")
        .id();
    // The first hangs, as it would while somebody holds its key; the second does not queue up behind it.
    until("the other one commits", || faults.calls(Call::Commit) == 2).await;
    assert_eq!(SPLITS.load(Ordering::SeqCst), 2);
    faults.let_go(Call::Commit);
    for parent in [keyed, plain] {
        let children: usize = client.result(parent, HOUR).await.expect("done");
        assert_eq!(children, 1);
    }
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_in_the_patient_lane_harms_nobody_else() {
    // contract: OUT-2, OUT-6
    let store = MemoryStore::new();
    let faults = store.faults();
    let (client, engine) = (client(&store), engine(&store).await);
    faults.hold(Call::Commit);
    let mut ids = Vec::new();
    for number in 0..3 {
        let parent = Parent {
            key: Some(format!("refused-{number}")),
        };
        ids.push(
            client
                .insert(Insert::machine(parent))
                .await
                .expect("inserted")
                .id(),
        );
    }
    let bad = ids[1];
    faults.refuse_commits(move |commit| {
        commit.id == bad && matches!(commit.transition, Transition::ScheduleChildren { .. })
    });
    faults.let_go(Call::Commit);
    for id in ids {
        let settled = client.result::<usize>(id, HOUR).await;
        match settled {
            Ok(children) => assert_eq!((id != bad, children), (true, 1)),
            Err(WaitError::Failed { failure, .. }) => {
                assert!(id == bad && failure.message.contains("refused"), "{failure}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    let settled = client.settled::<usize>(bad, HOUR).await.expect("settled");
    assert!(matches!(settled, Settled::Failed(_)));
    engine.shutdown().await;
}
