//! The calls that meet, and what they work on.

use std::time::Duration;

use durable_core::store::{
    ClaimRequest, Commit, CommitFate, CommitRequest, Eligible, NewInstance, NewSignal, Operation,
    OperationFate, Transition,
};
use durable_core::{
    Failure, FailureKind, InstanceId, Json, MachineKey, QueueName, SignalFate, SignalName, Store as _,
    StoreError, Target, WorkerId,
};
use durable_pg::PgStore;

/// One call.
#[derive(Clone)]
pub(super) enum Act {
    Commit(WorkerId, Commit),
    Deliver(InstanceId, &'static str),
    Expire,
    Cancel(InstanceId),
    Claim(ClaimRequest),
    Reap,
}

/// What it answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Commit(CommitFate),
    Deliver(SignalFate),
    /// How many were woken.
    Expire(u64),
    Operation(OperationFate),
    Claim(Vec<InstanceId>),
    /// How many were returned.
    Reap(u64),
    /// A row was held by somebody else; nothing was changed.
    TryAgain,
}

/// Calls until nobody stands in the way.
pub(super) async fn settle(store: &PgStore, act: Act) -> Answer {
    loop {
        match run(store, act.clone()).await {
            Answer::TryAgain => {}
            answer => return answer,
        }
    }
}

/// One call. A deadlock, as any error but that something is busy, ends the test.
pub(super) async fn run(store: &PgStore, act: Act) -> Answer {
    let answer = match act {
        Act::Commit(worker, commit) => store
            .commit(CommitRequest::new(worker, [commit], Vec::new()))
            .await
            .map(|committed| match committed.fates[0] {
                CommitFate::Locked => Answer::TryAgain,
                fate => Answer::Commit(fate),
            }),
        Act::Deliver(id, name) => {
            let signal = NewSignal {
                target: Target::Id(id),
                name: SignalName::new(name).expect("valid"),
                payload: json(),
                deduplication_key: None,
            };
            let delivered = store.deliver(vec![signal]).await;
            delivered.map(|delivered| Answer::Deliver(delivered.fates[0]))
        }
        Act::Expire => store
            .expire(10)
            .await
            .map(|expired| Answer::Expire(expired.instances)),
        Act::Cancel(id) => {
            let failure = Failure::new(FailureKind::Cancelled, "no");
            let operated = store
                .operate(vec![Target::Id(id)], Operation::Cancel { failure })
                .await;
            operated.map(|operated| Answer::Operation(operated.fates[0]))
        }
        Act::Claim(request) => store.claim(request).await.map(|claimed| {
            let ids = claimed.instances.iter().map(|one| one.id);
            Answer::Claim(ids.collect())
        }),
        Act::Reap => store.reap(10).await.map(|reaped| Answer::Reap(reaped.instances)),
    };
    match answer {
        Ok(answer) => answer,
        Err(StoreError::Transient { message }) if message.contains("55P03") => Answer::TryAgain,
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn json() -> Json {
    Json::from_store("1".to_owned())
}

pub(super) fn entry() -> NewInstance {
    NewInstance {
        machine: MachineKey::new("actor", 1).expect("valid"),
        queue: QueueName::new("default").expect("valid"),
        priority: 0,
        eligible: Eligible::In(Duration::ZERO),
        step: "first".to_owned(),
        state: json(),
        correlation: None,
        limits: durable_core::store::Limits::default(),
    }
}

pub(super) fn done() -> Transition {
    Transition::Done { result: json() }
}

pub(super) fn park(timeout: Option<Duration>) -> Transition {
    Transition::Await {
        step: "second".to_owned(),
        state: json(),
        signals: vec![SignalName::new("paid").expect("valid")],
        timeout,
    }
}

pub(super) fn spawn(children: usize) -> Transition {
    Transition::ScheduleChildren {
        step: "second".to_owned(),
        state: json(),
        children: vec![entry(); children],
        needed: None,
        timeout: None,
    }
}
