//! The conformance suite of transports, on each of them.

pub(crate) mod cluster;
mod local;
mod memory;
mod postgres;
mod redis;
