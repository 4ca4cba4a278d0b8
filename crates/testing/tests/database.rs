//! A database per test is really separate, and is gone afterwards.

use durable_testing::{PostgresServer, TestDatabase};
use sqlx::{Executor, PgPool};
use tokio::task::JoinSet;

async fn database_exists(name: &str) -> bool {
    let pool = PgPool::connect(PostgresServer::shared().await.unwrap().url())
        .await
        .unwrap();
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(name)
        .fetch_one(&pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_one_test_writes_no_other_test_sees() {
    let first = TestDatabase::new().await.unwrap();
    let second = TestDatabase::new().await.unwrap();
    assert_ne!(first.name(), second.name());
    let pool = first.pool(2).await.unwrap();
    pool.execute("CREATE TABLE mine (number int)").await.unwrap();
    let other = second.pool(2).await.unwrap();
    assert!(other.execute("SELECT * FROM mine").await.is_err());
    let elsewhere = PgPool::connect(&first.url()).await.unwrap();
    elsewhere.execute("SELECT * FROM mine").await.unwrap();
}

#[tokio::test]
async fn eight_at_once() {
    let mut databases = JoinSet::new();
    for _ in 0..8 {
        databases.spawn(async { TestDatabase::new().await.unwrap() });
    }
    let databases = databases.join_all().await;
    let mut names: Vec<&str> = databases.iter().map(TestDatabase::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 8);
    for database in &databases {
        let name: String = sqlx::query_scalar("SELECT current_database()::text")
            .fetch_one(&database.pool(1).await.unwrap())
            .await
            .unwrap();
        assert_eq!(name, database.name());
    }
}

#[tokio::test]
async fn eight_at_once_on_a_server_without_a_template() {
    use durable_testing::servers::Durability;
    let server = PostgresServer::start_own(Durability::Off).await.unwrap();
    let (a, b, c, d, e, f, g, h) = tokio::join!(
        TestDatabase::on(&server),
        TestDatabase::on(&server),
        TestDatabase::on(&server),
        TestDatabase::on(&server),
        TestDatabase::on(&server),
        TestDatabase::on(&server),
        TestDatabase::on(&server),
        TestDatabase::on(&server),
    );
    for database in [a, b, c, d, e, f, g, h] {
        database.unwrap();
    }
}

#[tokio::test]
async fn a_database_is_gone_after_drop_although_someone_is_connected() {
    let database = TestDatabase::new().await.unwrap();
    let name = database.name().to_owned();
    let pool = database.pool(1).await.unwrap();
    pool.execute("SELECT 1").await.unwrap();
    assert!(database_exists(&name).await);
    drop(database);
    assert!(!database_exists(&name).await);
}

#[tokio::test]
async fn an_empty_database_has_no_tables() {
    let database = TestDatabase::empty().await.unwrap();
    let tables: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    .fetch_one(&database.pool(1).await.unwrap())
    .await
    .unwrap();
    assert_eq!(tables, 0);
}
