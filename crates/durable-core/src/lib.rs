#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod client;
mod context;
mod error;
mod insert;
mod job;
mod machine;
pub mod observe;
mod outcome;
mod panic;
mod process;
mod registry;
mod runtime;
pub mod store;
mod types;

pub use client::Client;
pub use context::Context;
pub use error::{
    EncodeError, Error, Failure, FailureKind, InsertError, InvalidValue, StartError, StoreError, WaitError,
};
pub use insert::{DEFAULT_PRIORITY, Insert};
pub use job::{Job, JobError, exponential_backoff};
pub use machine::{Machine, StepResult};
pub use outcome::{Cancel, Done, Next, Outcome, Retry, Stop, cancel, done, next, retry, stop};
pub use process::ProcessIdentity;
pub use runtime::{Drain, DrainError, Engine, EngineBuilder, Queue, Tally};
pub use store::{Inserted, Retention, Snapshot, Store};
pub use types::{
    ClaimNumber, CorrelationKey, Fence, InstanceId, Json, MAX_DURATION, MAX_JSON_BYTES, MAX_NAME_BYTES,
    MachineKey, QueueName, Scope, Status, WorkerId,
};
