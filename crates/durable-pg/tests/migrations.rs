//! Migrations: any schema name, many nodes at once, and clear refusals.

use durable_pg::PgStore;
use durable_testing::TestDatabase;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_nodes_install_at_once_in_an_odd_schema() {
    // contract: OPS-4
    let database = TestDatabase::empty().await.expect("a database");
    let url = database.url();
    let nodes: Vec<_> = (0..20)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move {
                let builder = PgStore::builder(&url)
                    .expect("a url")
                    .schema("My \"Schema\"")
                    .max_connections(1);
                builder.connect().await.map(drop)
            })
        })
        .collect();
    for node in nodes {
        node.await.expect("no panic").expect("installed");
    }
}

#[tokio::test]
async fn a_schema_that_is_missing_or_newer_is_refused_with_a_clear_error() {
    // contract: OPS-4, OPS-7
    let database = TestDatabase::empty().await.expect("a database");
    let open = || PgStore::builder(&database.url()).expect("a url");
    let missing = open().migrate(false).connect().await.err().expect("refused");
    assert!(missing.to_string().contains("is at version 0"), "{missing}");
    open().connect().await.expect("installed");
    let pool = database.pool(1).await.expect("a pool");
    sqlx::query(
        "INSERT INTO durable.migrations (version, name, checksum, breaking) VALUES (99, 'x', 'x', true)",
    )
    .execute(&pool)
    .await
    .expect("written");
    let newer = open().connect().await.err().expect("refused");
    assert!(newer.to_string().contains("is at version 99"), "{newer}");
    let name = PgStore::builder(&database.url())
        .expect("a url")
        .schema("a'b")
        .connect()
        .await
        .err();
    assert!(name.expect("refused").to_string().contains("cannot be used"));
}

#[tokio::test]
async fn what_is_exported_as_sql_is_a_schema_that_a_store_opens() {
    // contract: OPS-4
    let schema = "My \"Schema\"";
    let database = TestDatabase::empty().await.expect("a database");
    let sql = durable_pg::migrate::export(schema).expect("exported");
    let pool = database.pool(1).await.expect("a pool");
    let install = || sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()));
    install().execute(&pool).await.expect("installed");
    let open = |migrate| {
        let builder = PgStore::builder(&database.url()).expect("a url").schema(schema);
        builder.migrate(migrate).connect()
    };
    open(false).await.map(drop).expect("what was exported is whole");
    open(true).await.map(drop).expect("nothing is left to migrate");
    assert!(
        install().execute(&pool).await.is_err(),
        "it is never applied twice"
    );
    assert!(durable_pg::migrate::export("a'b").is_err());
}
