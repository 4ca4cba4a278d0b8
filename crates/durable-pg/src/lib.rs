#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod connect;
mod error;
mod heart;
mod insert;
mod lanes;
pub mod migrate;
mod statements;
mod store;
mod transaction;

pub use connect::{ConnectError, PgStore, PgStoreBuilder};
pub use sqlx;
pub use transaction::TransactionClient;
