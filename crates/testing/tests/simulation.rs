//! Simulations: they replay exactly, the engine keeps its promises in them, and they find what is broken.

use std::cell::Cell;
use std::time::Duration;

use durable_core::{Context, Insert, Job, JobError};
use durable_testing::simulation::{Report, Simulation, simulate, workload};
use serde::{Deserialize, Serialize};

fn run(seed: u64) -> Report {
    workload::run(workload::simulation(seed)).unwrap_or_else(|failed| panic!("{failed}"))
}

#[test]
fn a_seed_is_a_run() {
    // contract: CORE-2
    for seed in 1..=200 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(1).trace, run(2).trace);
}

#[test]
fn the_engine_keeps_its_promises_whatever_happens() {
    // contract: CORE-1, CORE-2, CORE-3, CLAIM-4, CLAIM-6, LEASE-2, LEASE-4, OUT-3, OUT-6, SIG-1, CHILD-1, CANCEL-1, POKE-1
    simulate(20_000, run);
}

thread_local! {
    static CHARGED: Cell<u32> = const { Cell::new(0) };
}

/// Charges each time that it runs.
#[derive(Serialize, Deserialize)]
struct Charge;

impl Job for Charge {
    const NAME: &'static str = "charge";
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        CHARGED.set(CHARGED.get() + 1);
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(())
    }
}

/// Runs one charge, and says how often it was charged.
fn charge(seed: u64) -> u32 {
    CHARGED.set(0);
    Simulation::new(seed)
        .engine(|engine| engine.queue("default").job::<Charge>())
        .run(async |world| {
            world.client().insert(Insert::job(Charge)).await?;
            world.pause(Duration::from_secs(5)).await;
            world.crash(Duration::from_secs(20)).await;
            world.settle().await;
            Ok(())
        });
    CHARGED.get()
}

#[test]
fn a_step_that_must_not_run_twice_is_found_out_and_the_seed_shows_it_again() {
    // contract: CORE-2
    let twice: Vec<u64> = (1..=30).filter(|seed| charge(*seed) > 1).collect();
    assert!(!twice.is_empty(), "no crash came while it ran");
    assert!(twice.len() < 30, "each run crashed it");
    for seed in twice {
        assert!(charge(seed) > 1, "seed {seed}");
    }
}

#[test]
fn work_that_does_not_end_fails_the_run_and_the_message_says_how_to_run_it_again() {
    // contract: FSM-5
    let run = Simulation::new(7)
        .patience(Duration::from_secs(60))
        .engine(|engine| engine.queue("other").job::<Charge>());
    let failed = run
        .try_run(async |world| {
            world.client().insert(Insert::job(Charge)).await?;
            Ok(())
        })
        .expect_err("nobody serves its queue");
    let text = failed.to_string();
    for part in ["did not end", "\"charge\"", "DURABLE_SIMULATION_SEED=7", "Claim"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn an_engine_that_cannot_be_built_fails_the_run() {
    // contract: OPS-7
    let failed = Simulation::new(1)
        .engine(|engine| engine.queue(""))
        .try_run(async |world| {
            world.settle().await;
            world.pause(Duration::from_secs(1)).await;
            Ok(())
        })
        .expect_err("an empty name");
    assert!(failed.message.contains("queue"), "{}", failed.message);
}

#[test]
fn a_scenario_that_panics_says_its_seed() {
    let failed = Simulation::new(3)
        .try_run(async |_world| panic!("as planned"))
        .expect_err("it panics");
    assert!(
        failed
            .to_string()
            .contains("seed 3 fails: the scenario panicked: as planned"),
        "{failed}"
    );
}
