//! The integration tests of this crate, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails"
)]

mod assertions;
mod conformance;
mod database;
mod drain;
mod engine_ahead;
mod engine_cancellation;
mod engine_children;
mod engine_configuration;
mod engine_memory;
mod engine_metrics;
mod engine_operation;
mod engine_patience;
mod engine_poke_connections;
mod engine_pokes;
mod engine_rules;
mod engine_signals;
mod engine_spans;
mod engine_transactions;
mod engine_waiting;
mod histories;
mod limiter_conformance;
mod machine_failures;
mod memory;
mod servers;
mod simulation;
