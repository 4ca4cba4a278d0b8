//! Heartbeats, on a connection of their own.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use durable_core::store::{Beat, Heart};
use durable_core::{ClaimNumber, InstanceId, StoreError, WorkerId};
use sqlx::{Connection as _, PgConnection, Row as _};

use crate::connect::Shared;
use crate::error::store_error;
use crate::values::microseconds;

pub(crate) struct PgHeart {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connection: Option<PgConnection>,
}

#[async_trait]
impl Heart for PgHeart {
    async fn beat(&mut self, worker: WorkerId, lease: Duration) -> Result<Beat, StoreError> {
        // Taken out: a beat that fails or is dropped midway takes its connection with it.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => PgConnection::connect_with(&self.shared.options)
                .await
                .map_err(|error| StoreError::Transient {
                    message: error.to_string(),
                })?,
        };
        let row = sqlx::query(self.shared.statements.heartbeat.text())
            .bind(worker.get())
            .bind(microseconds(lease))
            .fetch_optional(&mut connection)
            .await
            .map_err(|error| store_error(&error))?;
        self.connection = Some(connection);
        let Some(row) = row else { return Ok(Beat::Dead) };
        let ids = |column| row.try_get(column).map_err(|error| store_error(&error));
        let (claims, cancelled): (Vec<i64>, Vec<i64>) = (ids("claims")?, ids("cancelled")?);
        Ok(Beat::Alive {
            claims: claims.into_iter().map(ClaimNumber::new).collect(),
            cancelled: cancelled.into_iter().map(InstanceId::new).collect(),
        })
    }
}
