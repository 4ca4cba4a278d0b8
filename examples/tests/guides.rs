//! What the guides say about names in the code is true.

use std::collections::BTreeSet;

use durable_core::{Client, Context, Engine, Insert, Job, JobError};
use durable_pg::{PgStore, sqlx};
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};

const OBSERVE: &str = include_str!("../../crates/durable-core/src/observe.rs");
const INSERT: &str = include_str!("../../crates/durable-pg/src/insert.rs");
const OPERATION: &str = include_str!("../../docs/guides/operation.md");

/// The metrics that a text names: each between the given quotes.
fn metrics(text: &str, quote: char) -> BTreeSet<&str> {
    text.split(quote)
        .filter(|name| {
            let known = |letter: u8| letter.is_ascii_lowercase() || letter == b'_';
            name.starts_with("durable_") && name.bytes().all(known)
        })
        .filter(|name| !["durable_core", "durable_pg", "durable_testing"].contains(name))
        .collect()
}

#[test]
fn the_guide_to_operation_lists_every_metric_and_no_other() {
    // contract: OPS-6
    let in_code = &metrics(OBSERVE, '"') | &metrics(INSERT, '"');
    assert!(in_code.len() > 10, "{in_code:?}");
    assert_eq!(in_code, metrics(OPERATION, '`'));
}

#[derive(Serialize, Deserialize)]
struct Fails;

impl Job for Fails {
    const NAME: &'static str = "fails";
    const MAX_ATTEMPTS: u32 = 1;
    type Output = ();

    async fn perform(&self, _context: &Context) -> Result<(), JobError> {
        Err("on purpose".into())
    }
}

#[tokio::test]
async fn the_queries_of_the_guide_to_operation_find_what_they_say() {
    let database = TestDatabase::new().await.expect("a database");
    let store = PgStore::connect(&database.url()).await.expect("connected");
    let client = Client::new(store.clone());
    client.insert(Insert::job(Fails)).await.expect("inserted");
    let engine = || Engine::builder(store.clone());
    let drain = engine().queue("default").job::<Fails>().drain();
    assert_eq!(drain.await.expect("drained").count("failed"), 1);
    client.insert(Insert::job(Fails)).await.expect("inserted");
    let only_maintains = engine().start().await.expect("started");

    let pool = database.pool(1).await.expect("a pool");
    let queries = OPERATION.split("```sql\n").skip(1);
    let queries: Vec<&str> = queries.filter_map(|rest| rest.split("```").next()).collect();
    let [due, workers, failures, waits] = queries[..] else {
        panic!("other queries than expected: {queries:?}")
    };
    for query in [due, workers, failures] {
        let rows = sqlx::query(query).fetch_all(&pool).await.expect(query);
        assert_eq!(rows.len(), 1, "{query}");
    }
    let parked = sqlx::query(waits).fetch_all(&pool).await.expect(waits);
    assert!(parked.is_empty(), "no invoice waits");
    only_maintains.shutdown().await;
}
