#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod assertions;
pub mod conformance;
pub mod database;
pub mod histories;
pub mod limiter_conformance;
pub mod memory;
pub mod memory_limiter;
pub mod poke_conformance;
pub mod pokes;
pub mod servers;
pub mod simulation;

pub use assertions::{AssertInstance, assert_instance};
pub use database::TestDatabase;
pub use memory::MemoryStore;
pub use memory_limiter::MemoryLimiter;
pub use pokes::MemoryPokes;
pub use servers::{PostgresServer, RedisServer};
