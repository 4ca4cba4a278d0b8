//! Children: one commit with the wait, what the parent sees, and when it goes on.

use std::time::Duration;

use durable_core::{
    ChildError, Context, Insert, Job, JobError, Machine, Settled, Status, StepResult, done, schedule_children,
};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine_rules::{builder, client, snapshot};

const HOUR: Duration = Duration::from_secs(3600);

/// 0 is cancelled, 1 fails, 2 never ends, all others are done.
#[derive(Serialize, Deserialize)]
struct Part(u32);

impl Job for Part {
    const NAME: &'static str = "part";
    const QUEUE: &'static str = "parts";
    const MAX_ATTEMPTS: u32 = 1;
    type Output = u32;

    async fn perform(&self, context: &Context) -> Result<u32, JobError> {
        match self.0 {
            0 => Err(JobError::cancel("not wanted")),
            1 => Err("broken".into()),
            2 => {
                context.stopping().cancelled().await;
                Err("stopped".into())
            }
            number => Ok(number),
        }
    }
}

#[derive(Serialize, Deserialize, Default)]
struct Whole {
    parts: Vec<u32>,
    key: Option<String>,
    first: Option<u32>,
    timeout: Option<Duration>,
}

#[derive(Serialize, Deserialize)]
enum WholeStep {
    Split,
    Join,
}

impl Machine for Whole {
    const NAME: &'static str = "whole";
    type Step = WholeStep;
    type Result = Vec<String>;

    fn first_step() -> WholeStep {
        WholeStep::Split
    }

    async fn step(self, step: WholeStep, context: &Context) -> StepResult<Self> {
        if matches!(step, WholeStep::Join) {
            let mut said: Vec<String> = context
                .children()
                .iter()
                .map(|child| match child.done::<u32>() {
                    Ok(number) => format!("done {number}"),
                    Err(ChildError::NotDone { status, failure, .. }) => {
                        let why = failure.map(|failure| failure.message).unwrap_or_default();
                        format!("{status} {why}").trim_end().to_owned()
                    }
                    Err(other) => other.to_string(),
                })
                .collect();
            if context.deadline_fired() {
                said.push("deadline".to_owned());
            }
            return done(said).ok();
        }
        let parts = self.parts.iter().map(|number| {
            let insert = Insert::job(Part(*number));
            match &self.key {
                Some(key) => insert.correlation_key(key.clone()),
                None => insert,
            }
        });
        let parts: Vec<_> = parts.collect();
        let (first, timeout) = (self.first, self.timeout);
        let mut fan_out = schedule_children(WholeStep::Join, self).children(parts);
        if let Some(first) = first {
            fan_out = fan_out.first(first);
        }
        if let Some(timeout) = timeout {
            fan_out = fan_out.timeout(timeout);
        }
        fan_out.ok()
    }
}

fn whole(parts: &[u32]) -> Whole {
    Whole {
        parts: parts.to_vec(),
        ..Whole::default()
    }
}

async fn engine(store: &MemoryStore) -> durable_core::Engine {
    let builder = builder(store).queue("default").queue("parts");
    let builder = builder.machine::<Whole>().job::<Part>();
    builder.start().await.expect("started")
}

#[tokio::test(start_paused = true)]
async fn a_parent_sees_how_each_child_ended_and_nothing_waits_for_a_poll() {
    // contract: CHILD-1, CHILD-2, FSM-3
    let store = MemoryStore::new();
    let (client, engine) = (client(&store), engine(&store).await);
    // Past the first polls, so that only pokes can be this fast.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let started = Instant::now();
    let id = client
        .insert(Insert::machine(whole(&[7, 1, 0, 8])))
        .await
        .expect("inserted")
        .id();
    let said: Vec<String> = client.result(id, HOUR).await.expect("done");
    assert_eq!(
        said,
        ["done 7", "failed broken", "cancelled not wanted", "done 8"]
    );
    assert!(
        started.elapsed() < Duration::from_millis(100),
        "{:?}: the children's queue and the parent's were poked",
        started.elapsed()
    );
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn with_nobody_to_wait_for_the_parent_goes_on_at_once() {
    // contract: CHILD-1
    let store = MemoryStore::new();
    let (client, engine) = (client(&store), engine(&store).await);
    let none = client
        .insert(Insert::machine(whole(&[])))
        .await
        .expect("inserted");
    let said: Vec<String> = client.result(none.id(), HOUR).await.expect("done");
    assert!(said.is_empty(), "{said:?}");
    let holder = Insert::job(Part(2)).correlation_key("part-1");
    client.insert(holder).await.expect("inserted");
    let keyed = Whole {
        key: Some("part-1".to_owned()),
        ..whole(&[9])
    };
    let id = client
        .insert(Insert::machine(keyed))
        .await
        .expect("inserted")
        .id();
    let said: Vec<String> = client.result(id, HOUR).await.expect("done");
    assert!(said.is_empty(), "a duplicate is not waited for: {said:?}");
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_may_wait_for_the_first_or_until_a_deadline() {
    // contract: CHILD-1, SIG-4
    let store = MemoryStore::new();
    let (client, engine) = (client(&store), engine(&store).await);
    let first = Whole {
        first: Some(1),
        ..whole(&[2, 5])
    };
    let id = client
        .insert(Insert::machine(first))
        .await
        .expect("inserted")
        .id();
    let said: Vec<String> = client.result(id, HOUR).await.expect("done");
    assert_eq!(said, ["runnable", "done 5"], "one is enough");
    let limited = Whole {
        timeout: Some(Duration::from_secs(10)),
        ..whole(&[2])
    };
    let id = client
        .insert(Insert::machine(limited))
        .await
        .expect("inserted")
        .id();
    let parked = client.settled::<Vec<String>>(id, HOUR).await.expect("settled");
    assert_eq!(parked, Settled::Parked);
    let said: Vec<String> = client.result(id, HOUR).await.expect("done");
    assert_eq!(said, ["runnable", "deadline"]);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_whose_commit_is_refused_leaves_no_child_and_one_whose_answer_is_lost_makes_no_second() {
    // contract: CHILD-1, OUT-2, OUT-3
    let store = MemoryStore::new();
    let client = client(&store);
    store.faults().lose_next_answer(Call::Commit);
    let engine = engine(&store).await;
    let id = client
        .insert(Insert::machine(whole(&[4, 5])))
        .await
        .expect("inserted")
        .id();
    let said: Vec<String> = client.result(id, HOUR).await.expect("done");
    assert_eq!(said, ["done 4", "done 5"]);
    store.faults().refuse_commits(|commit| {
        matches!(
            commit.transition,
            durable_core::store::Transition::ScheduleChildren { .. }
        )
    });
    let refused = client
        .insert(Insert::machine(whole(&[6])))
        .await
        .expect("inserted")
        .id();
    client
        .result::<Vec<String>>(refused, HOUR)
        .await
        .expect_err("refused");
    assert_eq!(snapshot(&client, refused).await.status, Status::Failed);
    engine.shutdown().await;
}
