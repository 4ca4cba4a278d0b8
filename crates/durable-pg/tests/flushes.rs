//! What waits for the disk: outcomes do, claims do not.

use sqlx::PgPool;

use crate::counted::{Counted, done};

/// How many are looked at. The server may flush by itself during a few of them.
const TRIES: usize = 50;
const BY_ITSELF: usize = 5;

/// Up to where the log is on disk, and up to where it has been written at all.
async fn log(pool: &PgPool) -> (i64, i64) {
    sqlx::query_as(
        "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint, (pg_current_wal_insert_lsn() - '0/0')::bigint",
    )
    .fetch_one(pool)
    .await
    .expect("read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_does_not_wait_for_the_disk_and_a_commit_of_outcomes_does() {
    // contract: CORE-1, CLAIM-2
    let counted = Counted::new().await;
    counted.insert(TRIES, "").await;
    let (mut claims_on_disk, mut commits_on_disk) = (0, 0);
    for number in 1..=TRIES {
        let number = i64::try_from(number).expect("small");
        let (_, before) = log(&counted.maintenance).await;
        let claimed = counted.claim(number, 1).await;
        assert_eq!(claimed.len(), 1);
        let (flushed, after) = log(&counted.maintenance).await;
        assert!(after > before, "a claim writes to the log");
        claims_on_disk += usize::from(flushed > before);
        counted.commit(&claimed, &done(), &[]).await;
        let (flushed, _) = log(&counted.maintenance).await;
        commits_on_disk += usize::from(flushed >= after);
    }
    assert_eq!(commits_on_disk, TRIES, "every commit waits");
    assert!(
        claims_on_disk <= BY_ITSELF,
        "{claims_on_disk} of {TRIES} claims were on disk when they were answered"
    );
}
