//! What the tests of durable, and of programs that use it, are written with.
//!
//! [`servers`] starts throw-away servers, [`database`] gives every test a database of its own, [`memory`] is the
//! reference model of the store, [`conformance`] is what every store must answer, and [`histories`] are what a
//! store and the model must agree on.

#![warn(missing_docs)]

pub mod conformance;
pub mod database;
pub mod histories;
pub mod memory;
pub mod servers;

pub use database::TestDatabase;
pub use servers::PostgresServer;
