//! The lanes that this process has met: queue, machine and version to the number that place rows carry.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use durable_core::{MachineKey, QueueName};
use sqlx::Row as _;

use crate::connect::Shared;

/// A lane by name.
pub(crate) type Lane<'a> = (&'a QueueName, &'a MachineKey);

/// A cache; lanes are never deleted. Bounded by the queues and machines of the program.
#[derive(Default)]
pub(crate) struct Lanes {
    known: RwLock<HashMap<QueueName, HashMap<MachineKey, i32>>>,
}

impl Lanes {
    /// The numbers of these lanes, in their order; missing ones are created, outside of any transaction of
    /// a caller.
    pub(crate) async fn ids<'a>(
        &self,
        shared: &Shared,
        lanes: impl Iterator<Item = Lane<'a>> + Clone + Send,
    ) -> Result<Vec<i32>, sqlx::Error> {
        let unknown = match self.look_up(lanes.clone()) {
            Ok(ids) => return Ok(ids),
            Err(unknown) => unknown,
        };
        self.learn(shared, &unknown).await?;
        self.look_up(lanes).map_err(|_| sqlx::Error::RowNotFound)
    }

    /// All numbers, or else the lanes that are not known, sorted, each once.
    fn look_up<'a>(&self, lanes: impl Iterator<Item = Lane<'a>>) -> Result<Vec<i32>, Vec<Lane<'a>>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (mut ids, mut unknown) = (Vec::with_capacity(lanes.size_hint().0), Vec::new());
        for (queue, machine) in lanes {
            match known.get(queue).and_then(|machines| machines.get(machine)) {
                Some(id) => ids.push(*id),
                None => unknown.push((queue, machine)),
            }
        }
        if unknown.is_empty() {
            return Ok(ids);
        }
        unknown.sort_unstable();
        unknown.dedup();
        Err(unknown)
    }

    async fn learn(&self, shared: &Shared, lanes: &[Lane<'_>]) -> Result<(), sqlx::Error> {
        let queues: Vec<String> = lanes.iter().map(|(queue, _)| queue.to_string()).collect();
        let machines: Vec<String> = lanes
            .iter()
            .map(|(_, machine)| machine.name().to_owned())
            .collect();
        let versions: Vec<i32> = lanes
            .iter()
            .map(|(_, machine)| machine.version().into())
            .collect();
        sqlx::query(shared.statements.create_lanes.text())
            .bind(&queues)
            .bind(&machines)
            .bind(&versions)
            .execute(&mut *shared.connection().await?)
            .await?;
        let rows = sqlx::query(shared.statements.find_lanes.text())
            .bind(&queues)
            .bind(&machines)
            .bind(&versions)
            .fetch_all(&mut *shared.connection().await?)
            .await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let place: i64 = row.try_get("place")?;
            let index = usize::try_from(place - 1).map_err(|error| sqlx::Error::Decode(error.into()))?;
            if let Some((queue, machine)) = lanes.get(index) {
                let machines = known.entry((*queue).clone()).or_default();
                machines.insert((*machine).clone(), row.try_get("id")?);
            }
        }
        Ok(())
    }
}
