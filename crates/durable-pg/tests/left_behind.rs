//! An instance that a caller's transaction holds stays behind in its claim or list, and alone.

use std::time::Duration;

use durable_core::store::Retention;
use durable_core::{ClaimNumber, InstanceId, Store as _};
use sqlx::{PgConnection, PgPool};

use crate::counted::{Counted, done};

async fn lock(caller: &mut PgConnection, id: InstanceId) {
    sqlx::query("SELECT FROM durable.instances WHERE id = $1 FOR UPDATE")
        .bind(id.get())
        .execute(caller)
        .await
        .expect("locked");
}

/// Which instances the rows of this table name.
async fn named(pool: &PgPool, statement: &'static str) -> Vec<Vec<i64>> {
    sqlx::query_scalar(statement).fetch_all(pool).await.expect("read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_given_back_keeps_what_a_caller_holds() {
    // contract: OUT-6, LEASE-5
    const CLAIMS: &str = "SELECT instance_ids FROM durable.claims ORDER BY number";
    let counted = Counted::new().await;
    let pool = counted.database.pool(2).await.expect("a pool");
    counted.insert(5, "").await;
    let first = counted.claim(1, 3).await;
    let second = counted.claim(2, 2).await;
    let mut caller = pool.begin().await.expect("begun");
    lock(&mut caller, first[1].0).await;
    let both = || vec![ClaimNumber::new(1), ClaimNumber::new(2)];
    let released = counted.store.release(counted.worker, both()).await;
    released.expect("given back");
    assert_eq!(named(&pool, CLAIMS).await, [[first[1].0.get()]]);
    caller.rollback().await.expect("rolled back");
    counted.commit(&first[1..2], &done(), &[]).await;
    let released = counted.store.release(counted.worker, both()).await;
    released.expect("nothing is left");
    assert_eq!(named(&pool, CLAIMS).await, Vec::<Vec<i64>>::new());
    assert_eq!(counted.claim(3, 10).await.len(), 2 + second.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_collected_keeps_what_a_caller_holds() {
    // contract: OPS-3
    const LISTS: &str = "SELECT instance_ids || instances::bigint FROM durable.finished";
    let counted = Counted::new().await;
    let pool = counted.database.pool(2).await.expect("a pool");
    counted.insert(3, "").await;
    let claimed = counted.claim(1, 3).await;
    counted.commit(&claimed, &done(), &[1]).await;
    let now = Retention {
        done: Duration::ZERO,
        ..Retention::default()
    };
    let mut caller = pool.begin().await.expect("begun");
    lock(&mut caller, claimed[2].0).await;
    let collected = counted.store.collect(now, 10).await.expect("collected");
    assert_eq!(collected.instances, 2);
    assert_eq!(named(&pool, LISTS).await, [[claimed[2].0.get(), 1]]);
    caller.rollback().await.expect("rolled back");
    let collected = counted.store.collect(now, 10).await.expect("collected");
    assert_eq!(collected.instances, 1);
    assert_eq!(named(&pool, LISTS).await, Vec::<Vec<i64>>::new());
}
