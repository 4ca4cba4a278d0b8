//! What the tests of durable, and of programs that use it, are written with.
//!
//! [`servers`] starts throw-away servers, [`database`] gives every test a database of its own.

#![warn(missing_docs)]

pub mod database;
pub mod memory;
pub mod servers;

pub use database::TestDatabase;
pub use servers::PostgresServer;
