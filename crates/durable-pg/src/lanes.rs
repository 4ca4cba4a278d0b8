//! The lanes that this process has met: queue, machine and version to the number that place rows carry.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use durable_core::{MachineKey, QueueName};
use sqlx::Row as _;

use crate::connect::Shared;

type Lane = (QueueName, MachineKey);

/// A cache; lanes are never deleted. Bounded by the queues and machines of the program.
#[derive(Default)]
pub(crate) struct Lanes {
    known: RwLock<HashMap<Lane, i32>>,
}

impl Lanes {
    /// The numbers of these lanes, in their order; missing ones are created, outside of any transaction of
    /// a caller.
    pub(crate) async fn ids(&self, shared: &Shared, lanes: &[Lane]) -> Result<Vec<i32>, sqlx::Error> {
        let unknown: Vec<&Lane> = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let mut unknown: Vec<&Lane> = lanes.iter().filter(|lane| !known.contains_key(lane)).collect();
            unknown.sort_unstable();
            unknown.dedup();
            unknown
        };
        if !unknown.is_empty() {
            self.learn(shared, &unknown).await?;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        lanes
            .iter()
            .map(|lane| known.get(lane).copied().ok_or(sqlx::Error::RowNotFound))
            .collect()
    }

    async fn learn(&self, shared: &Shared, lanes: &[&Lane]) -> Result<(), sqlx::Error> {
        let queues: Vec<String> = lanes.iter().map(|(queue, _)| queue.to_string()).collect();
        let machines: Vec<String> = lanes
            .iter()
            .map(|(_, machine)| machine.name().to_owned())
            .collect();
        let versions: Vec<i32> = lanes
            .iter()
            .map(|(_, machine)| machine.version().into())
            .collect();
        let mut connection = shared.connection().await?;
        sqlx::query(shared.statements.create_lanes.text())
            .bind(&queues)
            .bind(&machines)
            .bind(&versions)
            .execute(&mut *connection)
            .await?;
        let rows = sqlx::query(shared.statements.find_lanes.text())
            .bind(&queues)
            .bind(&machines)
            .bind(&versions)
            .fetch_all(&mut *connection)
            .await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let place: i64 = row.try_get("place")?;
            let index = usize::try_from(place - 1).map_err(|error| sqlx::Error::Decode(error.into()))?;
            if let Some(lane) = lanes.get(index) {
                known.insert((*lane).clone(), row.try_get("id")?);
            }
        }
        Ok(())
    }
}
