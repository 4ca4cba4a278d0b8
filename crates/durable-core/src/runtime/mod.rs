//! The runtime: one file, one role. Roles talk through channels; shared state is small and named.

mod builder;
mod collector;
mod committer;
mod drain;
mod engine;
mod executor;
mod feed;
mod heartbeat;
pub(crate) mod local;
mod reaper;
mod scheduler;
mod slots;
mod surveyor;
mod worker;

pub use builder::{EngineBuilder, Queue};
pub use drain::{Drain, DrainError, Tally};
pub use engine::Engine;
