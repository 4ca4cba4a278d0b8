//! The integration tests of this crate, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails"
)]

mod engine;
mod filled;
mod hot_statements;
mod migrations;
mod million;
mod plan;
mod plans;
mod schema;
mod store;
