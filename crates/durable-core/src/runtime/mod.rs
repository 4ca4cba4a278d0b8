//! The runtime: one file, one role. Roles talk through channels; shared state is small and named.

mod alarm;
mod alone;
mod attempt;
mod builder;
mod collector;
mod committer;
mod doorbell;
mod drain;
mod echo;
mod engine;
mod executor;
mod expirer;
mod feed;
mod finished;
mod heartbeat;
pub(crate) mod hub;
pub(crate) mod limits;
pub(crate) mod local;
mod outbox;
mod pace;
mod patient;
mod reaper;
mod running;
mod scheduler;
mod settler;
mod slots;
mod surveyor;
pub(crate) mod waiters;
mod worker;

pub use builder::{EngineBuilder, Queue};
pub use drain::{Drain, DrainError, Tally};
pub use engine::Engine;
