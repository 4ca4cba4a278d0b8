//! Outcomes that a step commits in a transaction of its own, played by one that the test makes.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use durable_core::store::{
    Commit, CommitFate, CommitRequest, Committed, OutcomeTransaction, Store as _, Transition,
};
use durable_core::{
    Context, Engine, Failure, Insert, Machine, StepResult, StoreError, WorkerId, done, next, stop,
    with_transaction,
};
use durable_testing::memory::MemoryStore;
use serde::{Deserialize, Serialize};

use crate::engine_rules::{builder, client};

const HOUR: Duration = Duration::from_secs(3600);

/// The store of each test, and which writes its transactions have committed.
static PLACES: LazyLock<Mutex<BTreeMap<String, Place>>> = LazyLock::new(Mutex::default);

struct Place {
    store: MemoryStore,
    written: Vec<u32>,
}

/// What a transaction wrote, and how its commit goes the first time.
struct Written {
    name: String,
    number: u32,
    fault: String,
}

#[async_trait]
impl OutcomeTransaction for Written {
    async fn commit(self: Box<Self>, worker: WorkerId, outcome: Commit) -> Result<Committed, StoreError> {
        let message = "injected".to_owned();
        let answer = |fate| {
            Ok(Committed {
                fates: vec![fate],
                ..Committed::default()
            })
        };
        match self.fault.as_str() {
            "transient" => return Err(StoreError::Transient { message }),
            "refused" => return Err(StoreError::Refused { message }),
            "lost before" => return Err(StoreError::Unknown { message }),
            "locked" => return answer(CommitFate::Locked),
            _ => {}
        }
        assert!(
            !matches!(outcome.transition, Transition::Ahead { .. }),
            "it goes through the queue"
        );
        let store = PLACES.lock().expect("whole")[&self.name].store.clone();
        let committed = store
            .commit(CommitRequest::new(worker, [outcome], Vec::new()))
            .await?;
        if committed.fates == [CommitFate::Committed] {
            let mut places = PLACES.lock().expect("whole");
            let place = places.get_mut(&self.name).expect("there");
            place.written.push(self.number);
        }
        if self.fault == "lost after" {
            return Err(StoreError::Unknown { message });
        }
        Ok(committed)
    }
}

/// Writes once per step, in a transaction that fails in some way the first time.
#[derive(Serialize, Deserialize)]
struct Ledger {
    name: String,
    fault: String,
    cancels: bool,
    tries: u32,
}

#[derive(Serialize, Deserialize)]
enum LedgerStep {
    Debit,
    Credit,
}

static TRIES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Machine for Ledger {
    const NAME: &'static str = "ledger";
    const RUN_AHEAD: bool = true;
    type Step = LedgerStep;
    type Result = u32;

    fn first_step() -> LedgerStep {
        LedgerStep::Debit
    }

    async fn step(self, step: LedgerStep, context: &Context) -> StepResult<Self> {
        assert_eq!(context.attempt(), 0, "what was rolled back counts as no attempt");
        let tries = {
            let mut tries = TRIES.lock().expect("whole");
            tries.push(self.name.clone());
            tries.iter().filter(|of| **of == self.name).count()
        };
        let fault = if tries == 1 {
            self.fault.clone()
        } else {
            String::new()
        };
        let write = |number| Written {
            name: self.name.clone(),
            number,
            fault: fault.clone(),
        };
        match step {
            LedgerStep::Debit => {
                if self.cancels {
                    context.stopping().cancelled().await;
                }
                let transaction = write(1);
                with_transaction(transaction, next(LedgerStep::Credit, self).ok())
            }
            LedgerStep::Credit => {
                let transaction = write(2);
                with_transaction(transaction, done(self.tries).ok())
            }
        }
    }

    async fn on_error(self, _step: LedgerStep, failure: &Failure, _context: &Context) -> StepResult<Self> {
        if failure.message.contains("injected") {
            let transaction = Written {
                name: self.name.clone(),
                number: 9,
                fault: String::new(),
            };
            return with_transaction(transaction, done(9).ok());
        }
        stop(failure.message.clone()).ok()
    }
}

async fn start(name: &str) -> (MemoryStore, Engine) {
    let store = MemoryStore::new();
    let place = Place {
        store: store.clone(),
        written: Vec::new(),
    };
    PLACES.lock().expect("whole").insert(name.to_owned(), place);
    let builder = builder(&store).queue("default").machine::<Ledger>();
    let engine = builder.start().await.expect("started");
    (store, engine)
}

fn written(name: &str) -> Vec<u32> {
    PLACES.lock().expect("whole")[name].written.clone()
}

fn ledger(name: &str, fault: &str, cancels: bool) -> Insert<u32> {
    Insert::machine(Ledger {
        name: name.to_owned(),
        fault: fault.to_owned(),
        cancels,
        tries: 0,
    })
}

#[tokio::test(start_paused = true)]
async fn what_a_step_wrote_stands_exactly_if_its_outcome_does() {
    // contract: OPS-8, OUT-3
    for fault in ["none", "transient", "locked", "lost before", "lost after"] {
        let (store, engine) = start(fault).await;
        let client = client(&store);
        let id = client
            .insert(ledger(fault, fault, false))
            .await
            .expect("inserted")
            .id();
        client.result::<u32>(id, HOUR).await.expect("done");
        assert_eq!(written(fault), [1, 2], "{fault}: each write once");
        engine.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_cannot_be_committed_goes_to_the_error_handler() {
    // contract: OPS-8, FSM-4
    let (store, engine) = start("refused").await;
    let client = client(&store);
    let id = client
        .insert(ledger("refused", "refused", false))
        .await
        .expect("inserted")
        .id();
    let result: u32 = client.result(id, HOUR).await.expect("the handler's");
    assert_eq!((result, written("refused")), (9, vec![9]));
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_step_and_one_whose_claim_was_lost_write_nothing() {
    // contract: OPS-8, CANCEL-1, CLAIM-4
    let (store, engine) = start("cancelled").await;
    let client = client(&store);
    let id = client
        .insert(ledger("cancelled", "none", true))
        .await
        .expect("inserted")
        .id();
    while TRIES
        .lock()
        .expect("whole")
        .iter()
        .all(|name| name != "cancelled")
    {
        tokio::task::yield_now().await;
    }
    client.cancel(id, "no").await.expect("asked");
    client.result::<u32>(id, HOUR).await.expect_err("cancelled");
    assert!(written("cancelled").is_empty());
    engine.shutdown().await;
}
