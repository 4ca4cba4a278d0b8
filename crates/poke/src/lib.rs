#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod postgres;
mod redis;

use std::sync::Arc;

use durable_core::Poking;

pub use self::redis::RedisPokes;
pub use postgres::PostgresPokes;

/// A value that names no transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "poke: it must be \"none\", \"local\", or the address of a Postgres or Redis server (postgres://..., redis://...)"
)]
pub struct UnknownTransport;

/// What a value of a configuration names: `none`, `local`, `postgres://...` (also `postgresql://...`), or
/// `redis://...`. Call it once
/// per process, and give the answer to each engine and client: they then share the connection.
///
/// # Errors
/// [`UnknownTransport`]; it does not repeat the value, which may hold a password.
pub fn from_url(value: &str) -> Result<Poking, UnknownTransport> {
    match value {
        "none" => Ok(Poking::None),
        "local" => Ok(Poking::Local),
        _ if value.starts_with("postgres://") || value.starts_with("postgresql://") => {
            Ok(Arc::new(PostgresPokes::new(value)).into())
        }
        _ if value.starts_with("redis://") => Ok(Arc::new(RedisPokes::new(value)).into()),
        _ => Err(UnknownTransport),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_names_the_transport_and_a_password_is_not_told() {
        assert!(matches!(from_url("none"), Ok(Poking::None)));
        assert!(matches!(from_url("local"), Ok(Poking::Local)));
        assert!(matches!(from_url("postgres://a@b/c"), Ok(Poking::Transport(_))));
        assert!(matches!(from_url("redis://b/0"), Ok(Poking::Transport(_))));
        let error = from_url("mysql://me:secret@b/c")
            .err()
            .map(|error| error.to_string());
        assert!(error.is_some_and(|error| !error.contains("secret")));
    }
}
