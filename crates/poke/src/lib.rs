#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod channel;
mod cluster;
mod postgres;
mod redis;

use std::sync::Arc;

use durable_core::Poking;

pub use self::redis::RedisPokes;
pub use cluster::{ClusterPokes, InvalidAddress};
pub use postgres::PostgresPokes;

/// A value that names no transport. It does not repeat the value, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownTransport {
    /// None that is known.
    #[error(
        "poke: it must be \"none\", \"local\", the address of this node for the others (cluster://...), or the address of a \
         Postgres or Redis server (postgres://..., redis://...)"
    )]
    Unknown,
    /// The address of this node is none.
    #[error("poke: {0}")]
    Address(#[from] InvalidAddress),
}

/// What a value of a configuration names: `none`, `local`, `cluster://...` with the address at which other nodes reach
/// this one, `postgres://...` (also `postgresql://...`), or `redis://...`. Call it once per process, and give the answer
/// to each engine and client: they then share the connection.
///
/// # Errors
/// [`UnknownTransport`].
pub fn from_url(value: &str) -> Result<Poking, UnknownTransport> {
    match value {
        "none" => Ok(Poking::None),
        "local" => Ok(Poking::Local),
        _ if value.starts_with("cluster://") => Ok(Arc::new(ClusterPokes::from_url(value)?).into()),
        _ if value.starts_with("postgres://") || value.starts_with("postgresql://") => {
            Ok(Arc::new(PostgresPokes::new(value)).into())
        }
        _ if value.starts_with("redis://") => Ok(Arc::new(RedisPokes::new(value)).into()),
        _ => Err(UnknownTransport::Unknown),
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
        for good in [
            "cluster://10.0.0.5",
            "cluster://a:7400",
            "cluster://[::1]:1?bind=[::]:2",
        ] {
            assert!(matches!(from_url(good), Ok(Poking::Transport(_))), "{good}");
        }
        for bad in [
            "cluster://",
            "cluster://0.0.0.0:1",
            "cluster://a:1?bind=b",
            "cluster://a:1?to=b",
        ] {
            assert_eq!(from_url(bad).err(), Some(InvalidAddress.into()), "{bad}");
        }
        let error = from_url("mysql://me:secret@b/c")
            .err()
            .map(|error| error.to_string());
        assert!(error.is_some_and(|error| !error.contains("secret")));
    }
}
