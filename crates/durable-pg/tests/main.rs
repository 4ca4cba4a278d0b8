//! The integration tests of this crate, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails"
)]

mod bytes;
mod conformance;
mod connections;
mod counted;
mod engine;
mod fan_out;
mod filled;
mod flushes;
mod histories;
mod hot_statements;
mod inserts;
mod interleavings;
mod left_behind;
mod lost_answers;
mod migrations;
mod million;
mod outages;
mod outcome_transactions;
mod plan;
mod plans;
mod processes;
mod proxy;
mod schema;
mod senders;
mod sql_functions;
mod statement_budget;
mod store;
mod trail;
mod transactions;
