//! The [`Store`] on Postgres: binds arrays, reads rows, decides nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use durable_core::store::{
    BringBack, BroughtBack, ClaimRequest, Claimed, Collected, Commit, CommitRequest, Committed, Delivered,
    DueKeys, Expired, Heart, KeyStanding, LimitKey, Meeting, Member, NewInstance, NewSignal, NewWorker,
    Operated, Operation, Policies, Reaped, Resolution, Retention, Settlement, Snapshot, Store, Survey,
    Target, Transition,
};
use durable_core::{
    ClaimNumber, ConcurrencyKey, CorrelationKey, Fence, Inserted, InstanceId, Json, LimitKind, LimitName,
    LimitPolicy, MachineKey, ProcessIdentity, QueueName, StoreError, WorkerId,
};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::claim::{claim, lanes};
use crate::commit::commit;
use crate::connect::PgStore;
use crate::heart::PgHeart;
use crate::insert::insert_batch;
use crate::insert_group::InsertGroup;
use crate::limits;
use crate::members::meet;
use crate::operation::operate;
use crate::recovery::{reap, take_back};
use crate::resolve::resolve;
use crate::signals::{deliver, expire};
use crate::snapshot::{settlements, snapshots};
use crate::survey::survey;
use crate::values::{decode_error, microseconds, unsigned};

#[async_trait]
impl Store for PgStore {
    fn identity(&self) -> String {
        self.shared.identity.clone()
    }

    async fn insert(&self, entries: Vec<NewInstance>) -> Result<Vec<Inserted>, StoreError> {
        if InsertGroup::takes(&entries) {
            return InsertGroup::insert(&self.shared, entries).await;
        }
        self.run(|shared| async move { insert_batch(&shared, &entries).await })
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
                .bind(worker.roles.reaper)
                .bind(worker.roles.collector)
                .fetch_one(&mut *shared.connection().await?)
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
                .execute(&mut *shared.connection().await?)
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
                .execute(&mut *shared.connection().await?)
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
                .fetch_all(&mut *shared.connection().await?)
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

    async fn commit(&self, request: CommitRequest) -> Result<Committed, StoreError> {
        if request.outcomes.is_empty() && request.closed.is_empty() {
            return Ok(Committed::default());
        }
        let runs_ahead = |commit: &Commit| matches!(commit.transition, Transition::Ahead { .. });
        if request.ahead.is_none() && request.outcomes.iter().any(runs_ahead) {
            let message = "an outcome runs ahead, but the commit has no claim for it".to_owned();
            return Err(StoreError::Fatal { message });
        }
        self.run(|shared| async move { commit(&shared, &request).await })
            .await
    }

    async fn deliver(&self, signals: Vec<NewSignal>) -> Result<Delivered, StoreError> {
        if signals.is_empty() {
            return Ok(Delivered::default());
        }
        self.run(|shared| async move { deliver(&shared, &signals).await })
            .await
    }

    async fn operate(&self, targets: Vec<Target>, operation: Operation) -> Result<Operated, StoreError> {
        if targets.is_empty() {
            return Ok(Operated::default());
        }
        self.run(|shared| async move { operate(&shared, &targets, &operation).await })
            .await
    }

    async fn unfinished_children(&self, parents: Vec<InstanceId>) -> Result<Vec<InstanceId>, StoreError> {
        self.run(|shared| async move {
            let parents: Vec<i64> = parents.into_iter().map(InstanceId::get).collect();
            let children: Vec<i64> = sqlx::query_scalar(shared.statements.unfinished_children.text())
                .bind(parents)
                .fetch_all(&mut *shared.connection().await?)
                .await?;
            Ok(children.into_iter().map(InstanceId::new).collect())
        })
        .await
    }

    async fn expire(&self, limit: usize) -> Result<Expired, StoreError> {
        self.run(|shared| async move { expire(&shared, limit).await })
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

    async fn release(
        &self,
        worker: WorkerId,
        claims: Vec<ClaimNumber>,
    ) -> Result<Vec<ConcurrencyKey>, StoreError> {
        self.run(|shared| async move {
            let numbers: Vec<i64> = claims.into_iter().map(ClaimNumber::get).collect();
            let workers = vec![worker.get(); numbers.len()];
            take_back(&shared, workers, numbers, 0)
                .await
                .map(|back| back.freed)
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
                .fetch_one(&mut *shared.connection().await?)
                .await?;
            let (removed, more): (i64, bool) = (row.try_get("removed")?, row.try_get("more")?);
            Ok(Collected {
                instances: unsigned(removed),
                more,
            })
        })
        .await
    }

    async fn bring_back(&self, keys: Vec<BringBack>) -> Result<Vec<BroughtBack>, StoreError> {
        self.run(|shared| async move { limits::bring_back(&shared, &keys).await })
            .await
    }

    async fn due_keys(&self, limit: usize) -> Result<DueKeys, StoreError> {
        self.run(|shared| async move { limits::due_keys(&shared, limit).await })
            .await
    }

    async fn set_limit(&self, policy: LimitPolicy) -> Result<i64, StoreError> {
        self.run(|shared| async move { limits::set_limit(&shared, &policy).await })
            .await
    }

    async fn remove_limit(&self, kind: LimitKind, name: LimitName) -> Result<bool, StoreError> {
        self.run(|shared| async move { limits::remove_limit(&shared, kind, &name).await })
            .await
    }

    async fn limits(&self) -> Result<Policies, StoreError> {
        self.run(|shared| async move { limits::policies(&shared).await })
            .await
    }

    async fn pause_key(&self, key: LimitKey, pause: Option<Duration>) -> Result<(), StoreError> {
        self.run(|shared| async move { limits::pause_key(&shared, &key, pause).await })
            .await
    }

    async fn keys(&self, keys: Vec<LimitKey>) -> Result<Vec<KeyStanding>, StoreError> {
        self.run(|shared| async move { limits::keys(&shared, &keys).await })
            .await
    }

    async fn forget_keys(&self, limit: usize) -> Result<u64, StoreError> {
        self.run(|shared| async move { limits::forget_keys(&shared, limit).await })
            .await
    }

    async fn make_due(&self, queue: QueueName, machines: Arc<[MachineKey]>) -> Result<u64, StoreError> {
        self.run(|shared| async move {
            let mut lanes = lanes(&shared, &queue, &machines).await?;
            lanes.extend(lanes.clone().into_iter().map(|lane| -lane));
            let moved: i64 = sqlx::query_scalar(shared.statements.make_due.text())
                .bind(lanes)
                .fetch_one(&mut *shared.connection().await?)
                .await?;
            Ok(unsigned(moved))
        })
        .await
    }

    async fn survey(
        &self,
        queues: Vec<QueueName>,
        machines: Arc<[MachineKey]>,
    ) -> Result<Survey, StoreError> {
        self.run(|shared| async move { survey(&shared, &queues, &machines).await })
            .await
    }

    async fn snapshots(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Snapshot>>, StoreError> {
        self.run(|shared| async move { snapshots(&shared, &ids).await })
            .await
    }

    async fn settlements(&self, ids: Vec<InstanceId>) -> Result<Vec<Option<Settlement>>, StoreError> {
        self.run(|shared| async move { settlements(&shared, &ids).await })
            .await
    }

    async fn meet(&self, member: Member, absent_after: Duration) -> Result<Meeting, StoreError> {
        self.run(|shared| async move { meet(&shared, &member, absent_after).await })
            .await
    }

    async fn part(&self, member: u64, version: u64) -> Result<(), StoreError> {
        self.run(|shared| async move {
            sqlx::query(shared.statements.part.text())
                .bind(member.cast_signed())
                .bind(version.cast_signed())
                .execute(&mut *shared.connection().await?)
                .await?;
            Ok(())
        })
        .await
    }

    async fn renew_secret(&self) -> Result<(), StoreError> {
        self.run(|shared| async move {
            sqlx::query(shared.statements.renew_secret.text())
                .execute(&mut *shared.connection().await?)
                .await?;
            Ok(())
        })
        .await
    }

    async fn find(&self, key: CorrelationKey) -> Result<Option<InstanceId>, StoreError> {
        self.run(|shared| async move {
            let id: Option<i64> = sqlx::query_scalar(shared.statements.find.text())
                .bind(key.as_str())
                .fetch_optional(&mut *shared.connection().await?)
                .await?;
            Ok(id.map(InstanceId::new))
        })
        .await
    }
}
