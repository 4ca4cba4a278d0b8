//! What is written for an instance whose state is large, and where outcomes write.

use durable_core::store::Beat;
use durable_core::{ClaimNumber, Store as _};
use sqlx::{AssertSqlSafe, PgPool};
use std::time::Duration;

use crate::counted::{Counted, again};

const MEBIBYTE: usize = 1 << 20;

/// Text that does not get smaller by compression.
fn noise(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}

/// The pieces in which large values are stored aside. A value that is written again gets other ones.
async fn pieces(pool: &PgPool) -> Vec<String> {
    let table: String = sqlx::query_scalar(
        "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'durable.instances'::regclass",
    )
    .fetch_one(pool)
    .await
    .expect("found");
    sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT concat_ws(' ', chunk_id, count(*), max(xmin::text)) FROM {table} GROUP BY chunk_id ORDER BY 1"
    )))
    .fetch_all(pool)
    .await
    .expect("read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_a_mebibyte_is_written_once_and_not_by_what_leaves_it_unchanged() {
    // contract: CLAIM-2, LEASE-1
    let counted = Counted::new().await;
    let pool = counted.database.pool(1).await.expect("a pool");
    counted.reset().await;
    counted.insert(1, &noise(MEBIBYTE)).await;
    let whole = counted.log_bytes().await;
    assert!(whole > 500_000, "the state is not compressed away: {whole} bytes");
    let before = pieces(&pool).await;
    assert_eq!(before.len(), 1, "stored aside: {before:?}");

    counted.reset().await;
    let claimed = counted.claim(1, 1).await;
    assert_eq!(claimed.len(), 1);
    let mut heart = counted.store.heart();
    let beat = heart.beat(counted.worker, Duration::from_secs(3600)).await;
    assert_eq!(
        beat.expect("beaten"),
        Beat::Alive {
            claims: vec![ClaimNumber::new(1)],
            cancelled: vec![]
        }
    );
    counted.commit(&claimed, &again(), &[]).await;
    let claimed = counted.claim(2, 1).await;
    assert_eq!(claimed.len(), 1, "a retry");
    counted
        .store
        .release(counted.worker, vec![ClaimNumber::new(2)])
        .await
        .expect("given back");
    let claimed = counted.claim(3, 1).await;
    assert_eq!(claimed.len(), 1, "a give-back");
    let written = counted.log_bytes().await;
    assert!(written > 0 && written < 20_000, "{written} bytes");
    assert_eq!(pieces(&pool).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_stay_on_the_page_of_their_row_and_write_no_index() {
    // contract: OUT-1
    let counted = Counted::new().await;
    let ids = counted.insert(2000, "small").await;
    for number in 1..=3_i64 {
        let claimed = counted.claim(number, ids.len()).await;
        assert_eq!(claimed.len(), ids.len());
        for batch in claimed.chunks(500) {
            let transition = if number == 3 {
                crate::counted::done()
            } else {
                again()
            };
            counted.commit(batch, &transition, &[]).await;
        }
    }
    // A session reports what it did at its end, if not before, and the server then needs a moment.
    counted.store.pool().close().await;
    let pool = counted.database.pool(1).await.expect("a pool");
    let reported = async {
        loop {
            let (all, hot): (i64, i64) = sqlx::query_as(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables \
                 WHERE schemaname = 'durable' AND relname = 'instances'",
            )
            .fetch_one(&pool)
            .await
            .expect("read");
            if all >= 6000 {
                return (all, hot);
            }
        }
    };
    let reported = tokio::time::timeout(Duration::from_secs(60), reported).await;
    let (all, hot) = reported.expect("all updates are reported");
    assert_eq!(all, 6000);
    assert!(hot * 100 >= all * 95, "{hot} of {all} updates are HOT");
}
