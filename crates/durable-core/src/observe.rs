//! Metrics and spans, in one place: names, labels, and what each tells (rule OPS-6).
//!
//! Each run of a step is in a span named `step`, with the fields `machine`, `step`, `instance` and `attempt`, so
//! that what a step logs says of which instance it speaks.
//!
//! Labels are bounded: queue and machine names, statuses and kinds, never ids or keys.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::context::Context;
use crate::limiter::{Admission, AdmitRequest, LimitKind, LimiterError};
use crate::store::{CommitFate, Transition};
use crate::types::{MachineKey, QueueName};

/// Counter, labels `transport` and `result` (`sent`, `received`, `echo`): messages of pokes between
/// processes (rule POKE-3).
pub const POKE_MESSAGES: &str = "durable_poke_messages_total";
/// Counter, labels `transport` and `reason`: messages that were dropped: `malformed`; with the transport between nodes
/// also `oversized`, `stray`, `forged`, `stale`, `replayed` (rule POKE-6).
pub const POKE_DROPPED: &str = "durable_poke_dropped_total";
/// Counter, label `transport`: connections for pokes that failed or could not be made (rule POKE-5).
pub const POKE_FAILURES: &str = "durable_poke_failures_total";
/// Gauge, label `transport`: other processes that the transport knows; only `cluster` can know it.
pub const POKE_PEERS: &str = "durable_poke_peers";
/// Gauge, label `transport`: 1 while connected, else 0.
pub const POKE_CONNECTED: &str = "durable_poke_connected";
/// Counter, label `queue`: instances inserted; duplicates are not counted.
pub const INSERTED: &str = "durable_inserted_total";
/// Counter, label `queue`: instances claimed.
pub const CLAIMED: &str = "durable_claimed_total";
/// Counter, labels `queue` and `result` (`found`, `empty`, `failed`): claims asked for.
pub const CLAIMS: &str = "durable_claims_total";
/// Histogram, seconds, label `queue`: how long a claim took.
pub const CLAIM_SECONDS: &str = "durable_claim_seconds";
/// Counter, labels `machine` and `transition`: outcomes committed.
pub const COMMITTED: &str = "durable_outcomes_total";
/// Counter, label `machine`: outcomes that were refused because the claim was lost before (rule CLAIM-4).
pub const STALE: &str = "durable_outcomes_stale_total";
/// Counter, label `machine`: outcomes set aside because another transaction held the row (rule OUT-6).
pub const LOCKED: &str = "durable_outcomes_locked_total";
/// Counter, label `machine`: outcomes that the store refused (rule OUT-2).
pub const REFUSED: &str = "durable_outcomes_refused_total";
/// Histogram: outcomes per group commit (rule OUT-1).
pub const COMMIT_SIZE: &str = "durable_commit_size";
/// Histogram, seconds: how long a group commit took.
pub const COMMIT_SECONDS: &str = "durable_commit_seconds";
/// Histogram, seconds, labels `machine` and `transition`: how long a step ran.
pub const STEP_SECONDS: &str = "durable_step_seconds";
/// Gauge, label `queue`: instances claimed and not yet committed.
pub const IN_FLIGHT: &str = "durable_in_flight";
/// Gauge, label `queue`: machines, by version, of which instances are ready in a queue of this process, and which
/// this process does not know (rule FSM-5). Looked at once a minute.
pub const UNKNOWN_MACHINES: &str = "durable_unknown_machines";
/// Counter: instances whose worker died and that were returned to runnable (rule LEASE-2).
pub const REAPED: &str = "durable_reaped_total";
/// Counter: workers declared dead.
pub const WORKERS_DEAD: &str = "durable_workers_dead_total";
/// Counter: times that this process lost its lease and went on as a new worker (rule LEASE-4).
pub const LEASES_LOST: &str = "durable_leases_lost_total";
/// Counter: claims whose answer was lost and that were given back (rule CLAIM-6).
pub const CLAIMS_RECOVERED: &str = "durable_claims_recovered_total";
/// Counter: deadlines of waits that this process fired (rule SIG-4).
pub const DEADLINES_FIRED: &str = "durable_deadlines_fired_total";
/// Counter: terminal instances removed after their retention (rule OPS-3).
pub const COLLECTED: &str = "durable_collected_total";
/// Counter, labels `call` and `kind` (`transient`, `unknown`, `refused`, `fatal`): calls to the store that
/// Counter: steps that a gate or rate limit let start, by kind and limit name.
pub const LIMIT_ADMITTED: &str = "durable_limit_admitted_total";
/// Counter: steps that were claimed and found no room at a gate or rate limit, by kind and limit name. Each then waits,
/// and is not claimed again before there is room.
pub const LIMIT_DENIED: &str = "durable_limit_denied_total";
/// Counter: steps that can never start as they are: a weight above the burst, or a rate limit that was removed. They rest
/// for a minute, and hold up nobody.
pub const LIMIT_UNUSABLE: &str = "durable_limit_unusable_total";
/// Counter: failed calls to the limiter, by limiter and call. While it fails, steps with a gate or a rate limit wait.
pub const LIMITER_ERRORS: &str = "durable_limiter_errors_total";
/// Counter: ready instances that a claim set aside, as their key had no room or others waited before them, by queue.
pub const SET_ASIDE: &str = "durable_set_aside_total";
/// Counter: instances that were brought back because there was room.
pub const BROUGHT_BACK: &str = "durable_brought_back_total";
/// Counter: slots that were lost, as their lease ended; their steps were stopped.
pub const SLOTS_LOST: &str = "durable_slots_lost_total";
/// Counter: slots of dead processes that were had back.
pub const SLOTS_RECONCILED: &str = "durable_slots_reconciled_total";
/// Counter: concurrency keys that were forgotten, as nobody held or waited for them.
pub const KEYS_FORGOTTEN: &str = "durable_keys_forgotten_total";
/// failed.
pub const STORE_ERRORS: &str = "durable_store_errors_total";

impl Transition {
    /// The name of the transition in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Next { .. } => "next",
            Self::Ahead { .. } => "ahead",
            Self::Await { .. } => "await",
            Self::ScheduleChildren { .. } => "schedule_children",
            Self::Retry { .. } => "retry",
            Self::GiveBack => "give_back",
            Self::Blocked { .. } => "blocked",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

/// One call to the limiter answered for one step.
pub(crate) fn admission(request: &AdmitRequest, admission: &Admission) {
    let names = [
        request.gate.as_ref().map(|gate| (LimitKind::Gate, &gate.policy)),
        request.rate.as_ref().map(|rate| (LimitKind::Rate, &rate.policy)),
    ];
    for (kind, policy) in names.into_iter().flatten() {
        let metric = match admission {
            Admission::Admitted(_) => LIMIT_ADMITTED,
            Admission::Denied { by, .. } if *by == kind => LIMIT_DENIED,
            Admission::Denied { .. } | Admission::TooHeavy { .. } => continue,
        };
        counter!(metric, "kind" => kind.as_str(), "limit" => policy.name.to_string()).increment(1);
    }
}

pub(crate) fn limit_unusable() {
    counter!(LIMIT_UNUSABLE).increment(1);
}

pub(crate) fn limiter_error(call: &'static str, error: &LimiterError) {
    counter!(LIMITER_ERRORS, "limiter" => error.limiter, "call" => call).increment(1);
    tracing::warn!(%error, call, "the limiter failed");
}

pub(crate) fn brought_back(count: u64) {
    counter!(BROUGHT_BACK).increment(count);
}

pub(crate) fn set_aside(queue: &QueueName, count: u64) {
    if count > 0 {
        counter!(SET_ASIDE, "queue" => queue.to_string()).increment(count);
    }
}

pub(crate) fn slots_lost(count: usize) {
    counter!(SLOTS_LOST).increment(count as u64);
}

pub(crate) fn slots_reconciled(count: u64) {
    counter!(SLOTS_RECONCILED).increment(count);
}

pub(crate) fn keys_forgotten(count: u64) {
    counter!(KEYS_FORGOTTEN).increment(count);
}

pub(crate) fn poke_message(transport: &'static str, result: &'static str) {
    counter!(POKE_MESSAGES, "transport" => transport, "result" => result).increment(1);
}

pub(crate) fn poke_dropped(transport: &'static str, reason: &'static str) {
    counter!(POKE_DROPPED, "transport" => transport, "reason" => reason).increment(1);
}

pub(crate) fn poke_failed(transport: &'static str, error: &crate::poke::PokeError) {
    counter!(POKE_FAILURES, "transport" => transport).increment(1);
    tracing::warn!(%error, "no pokes from other processes; polling, and connecting again");
}

pub(crate) fn poke_peers(transport: &'static str, peers: usize) {
    gauge!(POKE_PEERS, "transport" => transport).set(peers as f64);
}

pub(crate) fn poke_connected(transport: &'static str, connected: bool) {
    gauge!(POKE_CONNECTED, "transport" => transport).set(f64::from(u8::from(connected)));
}

pub(crate) fn inserted(queue: &QueueName, count: u64) {
    counter!(INSERTED, "queue" => queue.to_string()).increment(count);
}

pub(crate) fn claimed(queue: &QueueName, count: usize, took: Duration) {
    let result = if count > 0 { "found" } else { "empty" };
    counter!(CLAIMS, "queue" => queue.to_string(), "result" => result).increment(1);
    counter!(CLAIMED, "queue" => queue.to_string()).increment(count as u64);
    histogram!(CLAIM_SECONDS, "queue" => queue.to_string()).record(took);
}

pub(crate) fn claim_failed(queue: &QueueName) {
    counter!(CLAIMS, "queue" => queue.to_string(), "result" => "failed").increment(1);
}

pub(crate) fn in_flight(queue: &QueueName, count: usize) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge is a float; counts stay far below 2^52"
    )]
    gauge!(IN_FLIGHT, "queue" => queue.to_string()).set(count as f64);
}

pub(crate) fn step_ran(machine: &MachineKey, transition: &Transition, took: Duration) {
    histogram!(STEP_SECONDS, "machine" => machine.name().to_owned(), "transition" => transition.as_str())
        .record(took);
}

/// The span of one run of a step.
pub(crate) fn step_span(context: &Context) -> tracing::Span {
    tracing::info_span!(
        "step",
        machine = %context.machine,
        step = context.step(),
        instance = %context.id(),
        attempt = context.attempt(),
    )
}

pub(crate) fn unknown_machines(queue: &QueueName, count: usize) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float; counts are small")]
    gauge!(UNKNOWN_MACHINES, "queue" => queue.to_string()).set(count as f64);
}

pub(crate) fn commit(size: usize, took: Duration) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a histogram takes floats; batches are small"
    )]
    histogram!(COMMIT_SIZE).record(size as f64);
    histogram!(COMMIT_SECONDS).record(took);
}

pub(crate) fn outcome(machine: &MachineKey, transition: &Transition, fate: CommitFate) {
    let machine = machine.name().to_owned();
    match fate {
        CommitFate::Committed => {
            counter!(COMMITTED, "machine" => machine, "transition" => transition.as_str()).increment(1);
        }
        CommitFate::Stale => counter!(STALE, "machine" => machine).increment(1),
        CommitFate::Locked => counter!(LOCKED, "machine" => machine).increment(1),
        CommitFate::CancelRequested => {}
    }
}

pub(crate) fn refused(machine: &MachineKey) {
    counter!(REFUSED, "machine" => machine.name().to_owned()).increment(1);
}

pub(crate) fn reaped(workers: u64, instances: u64) {
    counter!(WORKERS_DEAD).increment(workers);
    counter!(REAPED).increment(instances);
}

pub(crate) fn lease_lost() {
    counter!(LEASES_LOST).increment(1);
}

pub(crate) fn claims_recovered(count: usize) {
    counter!(CLAIMS_RECOVERED).increment(count as u64);
}

pub(crate) fn deadlines_fired(count: u64) {
    counter!(DEADLINES_FIRED).increment(count);
}

pub(crate) fn collected(count: u64) {
    counter!(COLLECTED).increment(count);
}

pub(crate) fn store_error(call: &'static str, error: &crate::error::StoreError) {
    use crate::error::StoreError;
    let kind = match error {
        StoreError::Transient { .. } => "transient",
        StoreError::Unknown { .. } => "unknown",
        StoreError::Refused { .. } => "refused",
        StoreError::WorkerDead => "worker_dead",
        StoreError::Fatal { .. } => "fatal",
    };
    counter!(STORE_ERRORS, "call" => call, "kind" => kind).increment(1);
    match error {
        StoreError::Fatal { .. } | StoreError::Refused { .. } => {
            tracing::error!(call, %error, "the store failed");
        }
        _ => tracing::warn!(call, %error, "the store failed; trying again"),
    }
}
