//! The one place that maps what the driver says to what the core understands.

use durable_core::StoreError;

/// An error after which a part of the work may be committed, whatever its cause says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Uncertain(String);

/// Marks an error as one after which a part of the work may be committed.
pub(crate) fn uncertain(error: impl std::fmt::Display) -> sqlx::Error {
    sqlx::Error::AnyDriverError(Box::new(Uncertain(error.to_string())))
}

/// No connection could be had. Carried within the driver's error, as that is what work on the pool fails with.
#[derive(Debug, thiserror::Error)]
#[error("no connection: {0}")]
pub(crate) struct NotConnected(sqlx::Error);

impl NotConnected {
    pub(crate) fn error(error: sqlx::Error) -> sqlx::Error {
        sqlx::Error::AnyDriverError(Box::new(Self(error)))
    }
}

/// Maps an error of a statement. After an I/O error nobody knows whether the server committed.
pub(crate) fn store_error(error: &sqlx::Error) -> StoreError {
    let message = error.to_string();
    match error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default().into_owned();
            let message = format!("{message} (SQLSTATE {code})");
            match code.as_str() {
                "23503" if database.constraint() == Some("claims_worker_id_fkey") => StoreError::WorkerDead,
                "40001" | "40P01" | "55P03" | "57P03" => StoreError::Transient { message },
                // The server ended the session: what was in flight may have been committed just before.
                "57P01" | "57P02" | "57P05" => StoreError::Unknown { message },
                _ if code.starts_with("53") => StoreError::Transient { message },
                _ if code.starts_with("08") => StoreError::Unknown { message },
                _ if code.starts_with("22") || code.starts_with("23") || code == "54001" => {
                    StoreError::Refused { message }
                }
                _ => StoreError::Fatal { message },
            }
        }
        sqlx::Error::AnyDriverError(error) if error.is::<Uncertain>() => StoreError::Unknown { message },
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => StoreError::Transient { message },
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed | sqlx::Error::Tls(_) => {
            StoreError::Unknown { message }
        }
        sqlx::Error::AnyDriverError(source) => match source.downcast_ref() {
            Some(NotConnected(error)) => match store_error(error) {
                StoreError::Unknown { .. } => StoreError::Transient {
                    message: source.to_string(),
                },
                known => known,
            },
            None => StoreError::Fatal { message },
        },
        _ => StoreError::Fatal { message },
    }
}
