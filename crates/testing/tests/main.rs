//! The integration tests of this crate, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails"
)]

mod database;
mod engine_configuration;
mod engine_memory;
mod engine_metrics;
mod engine_operation;
mod engine_rules;
mod machine_failures;
mod servers;
