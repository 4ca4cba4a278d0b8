#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod chance;
mod client;
mod context;
mod error;
mod insert;
mod job;
pub mod limiter;
mod machine;
pub mod observe;
mod outcome;
mod panic;
pub mod poke;
mod process;
mod registry;
mod runtime;
pub mod store;
mod types;

pub use client::{Client, SendSignal, Settled};
pub use context::{ChildError, Context, SignalError};
pub use error::{
    DeliverError, EncodeError, Error, Failure, FailureKind, InsertError, InvalidValue, StartError,
    StoreError, WaitError,
};
pub use insert::{DEFAULT_PRIORITY, Insert};
pub use job::{Job, JobError, exponential_backoff};
pub use limiter::{Limit, LimitKind, LimitPolicy, Limiter, LimiterError};
pub use machine::{Machine, StepResult};
pub use outcome::{
    Await, Cancel, Done, Next, Outcome, Retry, ScheduleChildren, Stop, WithTransaction, await_signal,
    await_signals, cancel, done, next, retry, schedule_children, stop, with_transaction,
};
pub use poke::{PokeHealth, PokeTransport, Poking};
pub use process::ProcessIdentity;
pub use runtime::{Drain, DrainError, Engine, EngineBuilder, Queue, Tally};
pub use store::{
    Child, Inserted, Operation, OperationFate, Retention, Signal, SignalFate, Snapshot, Store, Target,
};
pub use types::{
    ClaimNumber, ConcurrencyKey, CorrelationKey, DeduplicationKey, Fence, InstanceId, Json, LimitName,
    MAX_DURATION, MAX_JSON_BYTES, MAX_NAME_BYTES, MachineKey, QueueName, RateKey, Scope, SignalName, Status,
    WorkerId,
};
