//! The few words that all histories are made of, and what a store takes for them.

use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{Eligible, Limits, NewInstance, NewSignal, Operation, Target, Transition};
use durable_core::{
    CorrelationKey, DeduplicationKey, Failure, FailureKind, InvalidValue, Json, MachineKey, QueueName, Scope,
    SignalName, Status, StoreError,
};
use serde_json::Value;

use super::call::{Act, Change, Entry, Sent, Timeout};

pub(super) const QUEUES: [&str; 2] = ["queue-0", "queue-1"];
pub(super) const MACHINES: [(&str, u16); 3] = [("machine-0", 1), ("machine-1", 1), ("machine-1", 2)];
pub(super) const KEYS: [&str; 4] = ["key-0", "key-1", "key-2", "key-3"];
pub(super) const SCOPES: usize = 5;
pub(super) const NAMES: [&str; 3] = ["name-0", "name-1", "name-2"];
pub(super) const DEDUPLICATION_KEYS: [&str; 3] = ["once-0", "once-1", "once-2"];

pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn new_instance(entry: &Entry) -> Result<NewInstance, StoreError> {
    checked(entry).map_err(|error| invalid(&error))
}

fn checked(entry: &Entry) -> Result<NewInstance, InvalidValue> {
    let correlation = match entry.key {
        Some((key, at)) => Some((CorrelationKey::new(KEYS[key % KEYS.len()])?, scope(at)?)),
        None => None,
    };
    let (name, version) = MACHINES[entry.machine % MACHINES.len()];
    Ok(NewInstance {
        machine: MachineKey::new(name, version)?,
        queue: QueueName::new(QUEUES[entry.queue % QUEUES.len()])?,
        priority: entry.priority,
        eligible: Eligible::In(if entry.later { HOUR } else { Duration::ZERO }),
        step: "first".to_owned(),
        state: json(if entry.bad { "{" } else { r#"{"at":"insert"}"# }),
        correlation,
        limits: Limits::default(),
    })
}

fn scope(position: usize) -> Result<Scope, InvalidValue> {
    match position % SCOPES {
        0 => Ok(Scope::UNTIL_TERMINAL),
        1 => Ok(Scope::UNTIL_STARTED),
        2 => Ok(Scope::UNTIL_REMOVED),
        3 => Scope::of(&[Status::Runnable, Status::Executing, Status::Failed]),
        _ => Scope::of(&[Status::Runnable, Status::Done]),
    }
}

pub(super) fn transition(change: &Change) -> Result<Transition, StoreError> {
    let delay = |later| if later { HOUR } else { Duration::ZERO };
    let because = |text: &str| Failure::new(FailureKind::Error, text);
    Ok(match change {
        Change::Next { later } => Transition::Next {
            step: "second".to_owned(),
            state: json(r#"{"at":"next"}"#),
            delay: delay(*later),
        },
        Change::Retry {
            state,
            later,
            failure,
        } => Transition::Retry {
            state: state.then(|| json(r#"{"at":"retry"}"#)),
            delay: delay(*later),
            failure: failure.then(|| because("a retry")),
        },
        Change::GiveBack => Transition::GiveBack,
        Change::Ahead => Transition::Ahead {
            step: "ahead".to_owned(),
            state: json(r#"{"at":"ahead"}"#),
        },
        Change::Await { names, timeout } => Transition::Await {
            step: "woken".to_owned(),
            state: json(r#"{"at":"await"}"#),
            signals: names
                .iter()
                .map(|name| signal_name(*name))
                .collect::<Result<_, _>>()?,
            timeout: duration(*timeout),
        },
        Change::ScheduleChildren {
            children,
            needed,
            timeout,
        } => Transition::ScheduleChildren {
            step: "joined".to_owned(),
            state: json(r#"{"at":"join"}"#),
            children: children.iter().map(new_instance).collect::<Result<_, _>>()?,
            needed: *needed,
            timeout: duration(*timeout),
        },
        Change::Done => Transition::Done {
            result: json(r#"["done"]"#),
        },
        Change::Failed => Transition::Failed {
            failure: because("failed"),
        },
        Change::Cancelled => Transition::Cancelled {
            failure: because("cancelled"),
        },
        Change::Refused => Transition::Next {
            step: "a\0b".to_owned(),
            state: json("1"),
            delay: Duration::ZERO,
        },
    })
}

fn duration(timeout: Timeout) -> Option<Duration> {
    match timeout {
        Timeout::None => None,
        Timeout::Zero => Some(Duration::ZERO),
        Timeout::Hour => Some(HOUR),
    }
}

pub(super) fn operation(act: Act) -> Operation {
    match act {
        Act::Cancel { reason } => Operation::Cancel {
            failure: Failure::new(FailureKind::Cancelled, format!("reason {reason}")),
        },
        Act::RetryNow => Operation::RetryNow,
        Act::Wake => Operation::Wake,
        Act::FireDeadline => Operation::FireDeadline,
        Act::Restart => Operation::Restart,
    }
}

pub(super) fn new_signal(target: Target, sent: Sent) -> Result<NewSignal, StoreError> {
    let deduplication_key = match sent.key {
        Some(key) => Some(deduplication_key(key)?),
        None => None,
    };
    Ok(NewSignal {
        target,
        name: signal_name(sent.name)?,
        payload: json(r#"{"at":"deliver"}"#),
        deduplication_key,
    })
}

fn signal_name(position: usize) -> Result<SignalName, StoreError> {
    SignalName::new(NAMES[position % NAMES.len()]).map_err(|error| invalid(&error))
}

fn deduplication_key(position: usize) -> Result<DeduplicationKey, StoreError> {
    let text = DEDUPLICATION_KEYS[position % DEDUPLICATION_KEYS.len()];
    DeduplicationKey::new(text).map_err(|error| invalid(&error))
}

pub(super) fn queue_name(position: usize) -> Result<QueueName, StoreError> {
    QueueName::new(QUEUES[position % QUEUES.len()]).map_err(|error| invalid(&error))
}

pub(super) fn machine_keys(positions: &[usize]) -> Result<Arc<[MachineKey]>, StoreError> {
    positions
        .iter()
        .map(|position| MACHINES[position % MACHINES.len()])
        .map(|(name, version)| MachineKey::new(name, version).map_err(|error| invalid(&error)))
        .collect()
}

pub(super) fn correlation_key(position: usize) -> Result<CorrelationKey, StoreError> {
    CorrelationKey::new(KEYS[position % KEYS.len()]).map_err(|error| invalid(&error))
}

fn invalid(error: &InvalidValue) -> StoreError {
    StoreError::Fatal {
        message: error.to_string(),
    }
}

fn json(text: &str) -> Json {
    Json::from_store(text.to_owned())
}

/// The value of JSON text: stores may write one value in several ways.
pub(super) fn value(json: &Json) -> Value {
    json.decode()
        .unwrap_or_else(|_| Value::String(format!("not JSON: {}", json.as_str())))
}
