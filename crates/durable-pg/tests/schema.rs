//! The schema that the migrations make, against the one that was reviewed.

use std::path::Path;

use durable_pg::{PgStore, migrate};
use durable_testing::TestDatabase;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

/// Set it to write the golden file instead of comparing with it.
const REWRITE: &str = "DURABLE_REWRITE_GOLDEN";

const SCHEMA: &str = r#"Odd "Name", durable"#;

/// One line per fact of the schema's catalogs, with `durable` for its name. From the catalogs, so that no program
/// beside the server is needed; only what all supported versions say alike.
async fn facts(pool: &PgPool, schema: &str) -> String {
    let lines: Vec<String> = sqlx::query_scalar(AssertSqlSafe(include_str!("schema_facts.sql")))
        .bind(schema)
        .fetch_all(pool)
        .await
        .expect("read");
    let quoted = format!("\"{}\".", schema.replace('"', "\"\""));
    lines.join("\n").replace(&quoted, "durable.") + "\n"
}

fn golden() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/schema.txt");
    std::fs::read_to_string(&path).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_migrations_make_the_schema_that_was_reviewed_under_any_name_and_again_make_nothing() {
    // contract: OPS-4
    let database = TestDatabase::empty().await.expect("a database");
    let store = PgStore::builder(&database.url())
        .expect("a url")
        .schema(SCHEMA)
        .connect()
        .await
        .expect("installed");
    let made = facts(store.pool(), SCHEMA).await;
    if std::env::var_os(REWRITE).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/schema.txt");
        std::fs::write(path, &made).expect("written");
    }
    for (made, reviewed) in made.lines().zip(golden().lines()) {
        assert_eq!(
            made, reviewed,
            "if the change of the schema is meant, set {REWRITE}=1 and review the file"
        );
    }
    assert_eq!(made, golden());

    let history = history(store.pool()).await;
    let mut connection = store.pool().acquire().await.expect("a connection");
    run_again(&mut connection).await;
    assert_eq!(facts(store.pool(), SCHEMA).await, made);
    assert_eq!(
        self::history(store.pool()).await,
        history,
        "nothing was applied twice"
    );
}

async fn run_again(connection: &mut PgConnection) {
    migrate::run(connection, SCHEMA).await.expect("nothing to do");
}

/// Version, checksum, installation and the id of the transaction that wrote it.
async fn history(pool: &PgPool) -> Vec<String> {
    let table = format!("\"{}\".migrations", SCHEMA.replace('"', "\"\""));
    sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT concat_ws(' ', version, checksum, installation, xmin) FROM {table} ORDER BY version"
    )))
    .fetch_all(pool)
    .await
    .expect("read")
}
