//! Pairs of calls on a real Postgres: one after the other, and each while the other is held in the middle. Whatever
//! the order, the store is whole afterwards, nobody lost a wake, and everything can still be ended.

mod act;
mod cancellations;
mod joins;
mod stage;
mod waits;
