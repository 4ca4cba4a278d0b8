//! The [`Store`] on Postgres: binds arrays, reads rows, decides nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use durable_core::store::{
    ClaimRequest, Claimed, ClaimedInstance, Collected, Commit, CommitFate, Heart, NewInstance, NewWorker,
    Reaped, Resolution, Retention, Snapshot, Store, Transition,
};
use durable_core::{
    ClaimNumber, CorrelationKey, Failure, Fence, Inserted, InstanceId, Json, MachineKey, ProcessIdentity,
    QueueName, StoreError, WorkerId,
};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::connect::{PgStore, Shared};
use crate::heart::PgHeart;
use crate::insert::{insert, microseconds};

/// How many due rows of one lane one statement moves to `ready`.
const PROMOTED_AT_ONCE: i32 = 1000;
/// How many claims one round of the reaper takes back at most.
const CLAIMS_AT_ONCE: usize = 20;

fn decode_error(error: impl std::error::Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn instance_ids(ids: &[InstanceId]) -> Vec<i64> {
    ids.iter().map(|id| id.get()).collect()
}

#[async_trait]
impl Store for PgStore {
    fn identity(&self) -> String {
        self.shared.identity.clone()
    }

    async fn insert(&self, entries: Vec<NewInstance>) -> Result<Vec<Inserted>, StoreError> {
        self.run(|shared| async move {
            let lanes: Vec<_> = entries
                .iter()
                .map(|entry| (entry.queue.clone(), entry.machine.clone()))
                .collect();
            let lanes = shared.lanes.ids(&shared.pool, &shared.statements, &lanes).await?;
            let mut connection = shared.pool.acquire().await?;
            insert(&mut connection, &shared.statements, &entries, &lanes).await
        })
        .await
    }

    async fn register(&self, worker: NewWorker) -> Result<WorkerId, StoreError> {
        self.run(|shared| async move {
            let process = worker
                .process
                .map(|process| Json::encode(&process))
                .transpose()
                .map_err(decode_error)?;
            let id: i64 = sqlx::query_scalar(shared.statements.register.text())
                .bind(worker.name)
                .bind(microseconds(worker.lease))
                .bind(process.as_ref().map(Json::as_str))
                .fetch_one(&shared.pool)
                .await?;
            Ok(WorkerId::new(id))
        })
        .await
    }

    fn heart(&self) -> Box<dyn Heart> {
        Box::new(PgHeart {
            shared: Arc::clone(&self.shared),
            connection: None,
        })
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.run(|shared| async move {
            sqlx::query(shared.statements.retire.text())
                .bind(worker.get())
                .execute(&shared.pool)
                .await?;
            Ok(())
        })
        .await
    }

    async fn declare_dead(&self, workers: Vec<WorkerId>) -> Result<(), StoreError> {
        self.run(|shared| async move {
            let ids: Vec<i64> = workers.into_iter().map(WorkerId::get).collect();
            sqlx::query(shared.statements.declare_dead.text())
                .bind(ids)
                .execute(&shared.pool)
                .await?;
            Ok(())
        })
        .await
    }

    async fn neighbours(
        &self,
        process: ProcessIdentity,
    ) -> Result<Vec<(WorkerId, ProcessIdentity)>, StoreError> {
        self.run(|shared| async move {
            let rows = sqlx::query(shared.statements.neighbours.text())
                .bind(process.boot)
                .bind(process.namespace)
                .fetch_all(&shared.pool)
                .await?;
            let read = |row: &PgRow| {
                let process = Json::from_store(row.try_get("process")?)
                    .decode()
                    .map_err(decode_error)?;
                Ok((WorkerId::new(row.try_get("id")?), process))
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let claimed = self
            .run(|shared| async move { claim(&shared, &request).await })
            .await?;
        claimed.ok_or(StoreError::WorkerDead)
    }

    async fn commit(
        &self,
        worker: WorkerId,
        outcomes: Arc<[Commit]>,
        closed: Vec<ClaimNumber>,
    ) -> Result<Vec<CommitFate>, StoreError> {
        if outcomes.is_empty() && closed.is_empty() {
            return Ok(Vec::new());
        }
        self.run(|shared| async move { commit(&shared, worker, &outcomes, &closed).await })
            .await
    }

    async fn resolve(
        &self,
        worker: WorkerId,
        outcomes: Vec<(InstanceId, Fence)>,
    ) -> Result<Vec<Resolution>, StoreError> {
        self.run(|shared| async move { resolve(&shared, worker, &outcomes).await })
            .await
    }

    async fn release(&self, worker: WorkerId, claims: Vec<ClaimNumber>) -> Result<(), StoreError> {
        self.run(|shared| async move {
            let numbers: Vec<i64> = claims.into_iter().map(ClaimNumber::get).collect();
            let workers = vec![worker.get(); numbers.len()];
            take_back(&shared, workers, numbers, 0).await.map(drop)
        })
        .await
    }

    async fn reap(&self, limit: usize) -> Result<Reaped, StoreError> {
        self.run(|shared| async move { reap(&shared, limit).await }).await
    }

    async fn collect(&self, retention: Retention, limit: usize) -> Result<Collected, StoreError> {
        self.run(|shared| async move {
            let row = sqlx::query(shared.statements.collect.text())
                .bind(microseconds(retention.done))
                .bind(microseconds(retention.failed))
                .bind(microseconds(retention.cancelled))
                .bind(i64::from(i32::try_from(limit).unwrap_or(i32::MAX)))
                .fetch_one(&shared.pool)
                .await?;
            let (removed, more): (i64, bool) = (row.try_get("removed")?, row.try_get("more")?);
            Ok(Collected {
                instances: unsigned(removed),
                // Without progress the rest is locked: nothing to do at once.
                more: more && removed > 0,
            })
        })
        .await
    }

    async fn make_due(&self, queue: QueueName, machines: Arc<[MachineKey]>) -> Result<u64, StoreError> {
        self.run(|shared| async move {
            let lanes = lanes(&shared, &queue, &machines).await?;
            let moved: i64 = sqlx::query_scalar(shared.statements.make_due.text())
                .bind(lanes)
                .fetch_one(&shared.pool)
                .await?;
            Ok(unsigned(moved))
        })
        .await
    }

    async fn snapshots(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Snapshot>>, StoreError> {
        self.run(|shared| async move {
            let rows = sqlx::query(shared.statements.snapshots.text())
                .bind(instance_ids(&ids))
                .fetch_all(&shared.pool)
                .await?;
            let mut snapshots = vec![None; ids.len()];
            for row in rows {
                let place = usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(decode_error)?;
                if let (Some(slot), Some(id)) = (snapshots.get_mut(place), ids.get(place)) {
                    *slot = Some(snapshot(*id, &row)?);
                }
            }
            Ok(snapshots)
        })
        .await
    }

    async fn find(&self, key: CorrelationKey) -> Result<Option<InstanceId>, StoreError> {
        self.run(|shared| async move {
            let id: Option<i64> = sqlx::query_scalar(shared.statements.find.text())
                .bind(key.as_str())
                .fetch_optional(&shared.pool)
                .await?;
            Ok(id.map(InstanceId::new))
        })
        .await
    }
}

async fn lanes(shared: &Shared, queue: &QueueName, machines: &[MachineKey]) -> Result<Vec<i32>, sqlx::Error> {
    let lanes: Vec<_> = machines
        .iter()
        .map(|machine| (queue.clone(), machine.clone()))
        .collect();
    shared.lanes.ids(&shared.pool, &shared.statements, &lanes).await
}

/// `None` when the worker is dead.
async fn claim(shared: &Shared, request: &ClaimRequest) -> Result<Option<Claimed>, sqlx::Error> {
    let lanes = lanes(shared, &request.queue, &request.machines).await?;
    let claimed = claim_once(shared, request, &lanes).await?;
    let due = |claimed: &Claimed| claimed.next_due == Some(Duration::ZERO);
    if !claimed.as_ref().is_some_and(due) {
        return Ok(claimed);
    }
    sqlx::query(shared.statements.promote.text())
        .bind(&lanes)
        .bind(vec![None::<i64>; lanes.len()])
        .bind(PROMOTED_AT_ONCE)
        .execute(&shared.pool)
        .await?;
    match claimed {
        // An empty claim left no row, so its number is still free.
        Some(claimed) if claimed.instances.is_empty() => claim_once(shared, request, &lanes).await,
        claimed => Ok(claimed),
    }
}

async fn claim_once(
    shared: &Shared,
    request: &ClaimRequest,
    lanes: &[i32],
) -> Result<Option<Claimed>, sqlx::Error> {
    let rows = sqlx::query(shared.statements.claim.text())
        .bind(request.worker.get())
        .bind(request.number.get())
        .bind(lanes)
        .bind(i64::try_from(request.limit).unwrap_or(i64::MAX))
        .bind(None::<Vec<i16>>)
        .bind(None::<Vec<i64>>)
        .bind(None::<Vec<i64>>)
        .bind(None::<Vec<i64>>)
        .fetch_all(&shared.pool)
        .await?;
    let mut claimed = Claimed::default();
    for row in rows {
        if !row.try_get::<bool, _>("alive")? {
            return Ok(None);
        }
        let due: Option<i64> = row.try_get("due_us")?;
        claimed.next_due = due.map(|due| Duration::from_micros(unsigned(due)));
        let Some(id) = row.try_get::<Option<i64>, _>("instance_id")? else {
            continue;
        };
        let lane: i32 = row.try_get("lane_id")?;
        let machine = lanes
            .iter()
            .position(|known| *known == lane)
            .ok_or(sqlx::Error::RowNotFound)?;
        claimed.instances.push(ClaimedInstance {
            id: InstanceId::new(id),
            fence: Fence {
                claim: request.number,
                seq: row.try_get("seq")?,
            },
            machine,
            step: row.try_get("step")?,
            state: Json::from_store(row.try_get("state")?),
            attempt: u32::try_from(row.try_get::<i32, _>("attempt")?).map_err(decode_error)?,
            crashes: u32::try_from(row.try_get::<i16, _>("crashes")?).map_err(decode_error)?,
        });
    }
    Ok(Some(claimed))
}

/// One array per column of a commit.
#[derive(Default)]
struct Columns<'a> {
    ids: Vec<i64>,
    numbers: Vec<i64>,
    seqs: Vec<i32>,
    kinds: Vec<&'static str>,
    steps: Vec<Option<&'a str>>,
    states: Vec<Option<&'a str>>,
    delays: Vec<Option<i64>>,
    results: Vec<Option<&'a str>>,
    failures: Vec<Option<String>>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, commit: &'a Commit) -> Result<(), sqlx::Error> {
        let mut columns = (None, None, None, None, None);
        match &commit.transition {
            Transition::Next { step, state, delay } => {
                columns.0 = Some(step.as_str());
                columns.1 = Some(state.as_str());
                columns.2 = Some(microseconds(*delay));
            }
            Transition::Retry {
                state,
                delay,
                failure,
            } => {
                columns.1 = state.as_ref().map(Json::as_str);
                columns.2 = Some(microseconds(*delay));
                columns.4 = failure.as_ref();
            }
            Transition::Done { result } => columns.3 = Some(result.as_str()),
            Transition::Failed { failure } | Transition::Cancelled { failure } => columns.4 = Some(failure),
            _ => {}
        }
        let failure = columns
            .4
            .map(Json::encode::<Failure>)
            .transpose()
            .map_err(decode_error)?;
        self.ids.push(commit.id.get());
        self.numbers.push(commit.fence.claim.get());
        self.seqs.push(commit.fence.seq);
        self.kinds.push(commit.transition.as_str());
        self.steps.push(columns.0);
        self.states.push(columns.1);
        self.delays.push(columns.2);
        self.results.push(columns.3);
        self.failures
            .push(failure.map(|failure| failure.as_str().to_owned()));
        Ok(())
    }
}

async fn commit(
    shared: &Shared,
    worker: WorkerId,
    outcomes: &[Commit],
    closed: &[ClaimNumber],
) -> Result<Vec<CommitFate>, sqlx::Error> {
    let mut columns = Columns::default();
    for outcome in outcomes {
        columns.push(outcome)?;
    }
    let closed: Vec<i64> = closed.iter().map(|number| number.get()).collect();
    let row = sqlx::query(shared.statements.commit.text())
        .bind(worker.get())
        .bind(columns.ids)
        .bind(columns.numbers)
        .bind(columns.seqs)
        .bind(columns.kinds)
        .bind(columns.steps)
        .bind(columns.states)
        .bind(columns.delays)
        .bind(columns.results)
        .bind(columns.failures)
        .bind(closed)
        .fetch_one(&shared.pool)
        .await?;
    let places = |column| -> Result<HashSet<i64>, sqlx::Error> {
        Ok(row
            .try_get::<Option<Vec<i64>>, _>(column)?
            .unwrap_or_default()
            .into_iter()
            .collect())
    };
    let (committed, locked) = (places("committed")?, places("locked")?);
    let fate = |place: i64| {
        if committed.contains(&place) {
            CommitFate::Committed
        } else if locked.contains(&place) {
            CommitFate::Locked
        } else {
            CommitFate::Stale
        }
    };
    Ok((1..).take(outcomes.len()).map(fate).collect())
}

async fn resolve(
    shared: &Shared,
    worker: WorkerId,
    outcomes: &[(InstanceId, Fence)],
) -> Result<Vec<Resolution>, sqlx::Error> {
    let ids: Vec<i64> = outcomes.iter().map(|(id, _)| id.get()).collect();
    let numbers: Vec<i64> = outcomes.iter().map(|(_, fence)| fence.claim.get()).collect();
    let mut transaction = shared.pool.begin().await?;
    let claims = sqlx::query(shared.statements.lock_claims.text())
        .bind(worker.get())
        .bind(numbers)
        .fetch_all(&mut *transaction)
        .await?;
    let rows = sqlx::query(shared.statements.fencing_numbers.text())
        .bind(ids)
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let mut held = HashSet::new();
    for claim in claims {
        let number: i64 = claim.try_get("number")?;
        let (ids, seqs): (Vec<i64>, Vec<i32>) = (claim.try_get("instance_ids")?, claim.try_get("seqs")?);
        held.extend(ids.into_iter().zip(seqs).map(|(id, seq)| (number, id, seq)));
    }
    let mut seqs = vec![None; outcomes.len()];
    for row in rows {
        let place = usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(decode_error)?;
        if let Some(slot) = seqs.get_mut(place) {
            *slot = Some(row.try_get::<i32, _>("seq")?);
        }
    }
    let resolution = |((id, fence), seq): (&(InstanceId, Fence), Option<i32>)| {
        if !held.contains(&(fence.claim.get(), id.get(), fence.seq)) {
            Resolution::Lost
        } else if seq == Some(fence.seq) {
            Resolution::NotCommitted
        } else {
            Resolution::Committed
        }
    };
    Ok(outcomes.iter().zip(seqs).map(resolution).collect())
}

/// How many instances were returned to runnable, and how many claims are gone.
async fn take_back(
    shared: &Shared,
    workers: Vec<i64>,
    numbers: Vec<i64>,
    attempts: i16,
) -> Result<(u64, u64), sqlx::Error> {
    let row = sqlx::query(shared.statements.take_back.text())
        .bind(workers)
        .bind(numbers)
        .bind(attempts)
        .fetch_one(&shared.pool)
        .await?;
    Ok((
        unsigned(row.try_get("instances")?),
        unsigned(row.try_get("claims")?),
    ))
}

async fn reap(shared: &Shared, limit: usize) -> Result<Reaped, sqlx::Error> {
    let dead = sqlx::query(shared.statements.mark_dead.text())
        .fetch_all(&shared.pool)
        .await?;
    let rows = sqlx::query(shared.statements.dead_claims.text())
        // One more than is taken, to know whether any is left.
        .bind(i64::try_from(CLAIMS_AT_ONCE + 1).map_err(decode_error)?)
        .fetch_all(&shared.pool)
        .await?;
    let (mut workers, mut numbers, mut named) = (Vec::new(), Vec::new(), 0_usize);
    for row in rows.iter().take(CLAIMS_AT_ONCE) {
        if named >= limit {
            break;
        }
        workers.push(row.try_get::<i64, _>("worker_id")?);
        numbers.push(row.try_get::<i64, _>("number")?);
        named += usize::try_from(row.try_get::<i32, _>("instances")?).map_err(decode_error)?;
    }
    let left = rows.len() > numbers.len();
    let (instances, claims) = if numbers.is_empty() {
        (0, 0)
    } else {
        take_back(shared, workers, numbers, 1).await?
    };
    if let Err(error) = sqlx::query(shared.statements.delete_dead_workers.text())
        .execute(&shared.pool)
        .await
    {
        // A claim came in at the last moment; the next round takes it back.
        if !error
            .as_database_error()
            .is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation)
        {
            return Err(error);
        }
    }
    Ok(Reaped {
        workers: dead.len() as u64,
        instances,
        // Without progress the rest is locked: nothing to do at once.
        more: left && instances + claims > 0,
    })
}

fn snapshot(id: InstanceId, row: &PgRow) -> Result<Snapshot, sqlx::Error> {
    let version = u16::try_from(row.try_get::<i32, _>("machine_version")?).map_err(decode_error)?;
    let failure: Option<String> = row.try_get("failure")?;
    let key: Option<String> = row.try_get("correlation_guard")?;
    let result: Option<String> = row.try_get("result")?;
    Ok(Snapshot {
        id,
        machine: MachineKey::new(row.try_get::<String, _>("machine")?, version).map_err(decode_error)?,
        queue: QueueName::new(row.try_get::<String, _>("queue")?).map_err(decode_error)?,
        status: row
            .try_get::<String, _>("status")?
            .parse()
            .map_err(decode_error)?,
        step: row.try_get("step")?,
        state: Json::from_store(row.try_get("state")?),
        attempt: u32::try_from(row.try_get::<i32, _>("attempt")?).map_err(decode_error)?,
        crashes: u32::try_from(row.try_get::<i16, _>("crashes")?).map_err(decode_error)?,
        result: result.map(Json::from_store),
        failure: failure
            .map(|failure| Json::from_store(failure).decode())
            .transpose()
            .map_err(decode_error)?,
        correlation_key: key.map(CorrelationKey::new).transpose().map_err(decode_error)?,
        due_in: Duration::from_micros(unsigned(row.try_get("due_us")?)),
    })
}
