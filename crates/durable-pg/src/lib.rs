#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod claim;
mod commit;
mod connect;
mod coordination;
mod error;
mod heart;
mod insert;
mod insert_group;
mod lanes;
mod limits;
mod low_water;
mod members;
pub mod migrate;
mod operation;
mod outcome_transaction;
mod recovery;
mod resolve;
mod signals;
mod snapshot;
mod statements;
mod store;
mod survey;
mod transaction;
mod values;

pub use connect::{ConnectError, PgStore, PgStoreBuilder};
pub use insert::INSERT_RACES;
pub use outcome_transaction::AttachedTransaction;
pub use sqlx;
pub use transaction::TransactionClient;
