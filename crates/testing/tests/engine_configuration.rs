//! Wrong options of an engine: all named at once, before anything is done (rule OPS-7).

use std::time::Duration;

use durable_core::{Context, Job, JobError, Machine, Queue, Retention, StartError, StepResult, done};
use durable_testing::memory::{Call, MemoryStore};
use serde::{Deserialize, Serialize};

use crate::engine_operation::Nothing;
use crate::engine_rules::builder;

const HOUR: Duration = Duration::from_secs(3600);

/// A job that may never be tried.
#[derive(Serialize, Deserialize)]
struct Never;

impl Job for Never {
    const NAME: &'static str = "never";
    const MAX_ATTEMPTS: u32 = 0;
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// A machine without a name, and with a first step that is no name either.
#[derive(Serialize, Deserialize)]
struct Nameless;

impl Machine for Nameless {
    const NAME: &'static str = "";
    type Step = u32;
    type Result = ();

    fn first_step() -> u32 {
        7
    }

    async fn step(self, _step: u32, _context: &Context) -> StepResult<Self> {
        done(()).ok()
    }
}

#[tokio::test(start_paused = true)]
async fn every_wrong_option_is_named_all_at_once_and_nothing_is_done() {
    // contract: OPS-7
    let store = MemoryStore::new();
    let good = || builder(&store).queue("default").job::<Nothing>();
    let too_long = Duration::MAX;
    let retention = |done, failed, cancelled| Retention {
        done,
        failed,
        cancelled,
    };
    let cases = [
        ("name", good().name("")),
        ("name", good().name("a\0b")),
        ("queue", good().queue("")),
        ("queue", good().queue("a\nb")),
        ("queue \"default\" is given twice", good().queue("default")),
        (
            "concurrency is 0",
            good().queue(Queue::new("mail").concurrency(0)),
        ),
        (
            "concurrency is 10001",
            good().queue(Queue::new("mail").concurrency(10_001)),
        ),
        ("machine", builder(&store).queue("default")),
        ("nothing v1 is registered twice", good().job::<Nothing>()),
        ("MAX_ATTEMPTS", good().job::<Never>()),
        ("plain string", good().machine::<Nameless>()),
        ("lease is 199ms", good().lease(Duration::from_millis(199))),
        ("lease", good().lease(too_long)),
        ("poll_interval is 0ns", good().poll_interval(Duration::ZERO)),
        ("poll_interval", good().poll_interval(too_long)),
        ("shutdown_limit", good().shutdown_limit(too_long)),
        (
            "retention.done",
            good().retention(retention(too_long, HOUR, HOUR)),
        ),
        (
            "retention.failed",
            good().retention(retention(HOUR, too_long, HOUR)),
        ),
        (
            "retention.cancelled",
            good().retention(retention(HOUR, HOUR, too_long)),
        ),
    ];
    for (named, builder) in cases {
        let error = builder
            .start()
            .await
            .err()
            .unwrap_or_else(|| panic!("{named}: not refused"));
        let StartError::Configuration { faults } = &error else {
            panic!("{named}: {error}")
        };
        assert!(
            faults.iter().any(|fault| fault.contains(named)),
            "{named}: {faults:?}"
        );
    }
    let error = good()
        .name("")
        .queue(Queue::new("").concurrency(0))
        .queue("default")
        .job::<Never>()
        .machine::<Nameless>()
        .lease(Duration::ZERO)
        .poll_interval(Duration::ZERO)
        .shutdown_limit(too_long)
        .retention(retention(too_long, too_long, too_long))
        .start()
        .await
        .err()
        .expect("refused");
    let StartError::Configuration { faults } = error else {
        panic!("{error}")
    };
    assert_eq!(faults.len(), 13, "{faults:#?}");
    for call in [
        Call::Register,
        Call::Neighbours,
        Call::Claim,
        Call::Beat,
        Call::Reap,
    ] {
        assert_eq!(store.faults().calls(call), 0, "{call:?}");
    }
    good()
        .start()
        .await
        .expect("the name was never taken")
        .shutdown()
        .await;
}
