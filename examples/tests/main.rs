//! The tests of the examples, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a panic is how a test fails"
)]

mod guides;
mod programs;
mod testing_a_machine;
