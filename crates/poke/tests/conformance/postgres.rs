//! LISTEN and NOTIFY of a real Postgres, on a database that can be closed.

use durable_core::Poking;

use durable_testing::poke_conformance::Subject;
use durable_testing::{PostgresServer, TestDatabase};
use sqlx::{Connection as _, PgConnection};

struct Postgres(TestDatabase);

impl Postgres {
    /// Lets connections be made, or not.
    async fn open(&self, open: bool) {
        let server = PostgresServer::shared().await.expect("a server");
        let mut server = PgConnection::connect(server.url()).await.expect("connected");
        let name = self.0.name();
        let statement = format!("ALTER DATABASE \"{name}\" WITH ALLOW_CONNECTIONS {open}");
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(&mut server)
            .await
            .expect("altered");
        if !open {
            sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1")
                .bind(name)
                .execute(&mut server)
                .await
                .expect("cut");
        }
    }
}

impl Subject for Postgres {
    async fn fresh() -> Self {
        Self(TestDatabase::new().await.expect("a database"))
    }

    fn poking(&self) -> Poking {
        durable_poke::from_url(&self.0.url()).expect("an address")
    }

    async fn cut(&mut self) {
        self.open(false).await;
    }

    async fn restore(&mut self) {
        self.open(true).await;
    }

    async fn inject(&self, bytes: &[u8]) {
        let pool = self.0.pool(1).await.expect("a pool");
        sqlx::query("SELECT pg_notify('durable_pokes', $1)")
            .bind(String::from_utf8_lossy(bytes).into_owned())
            .execute(&pool)
            .await
            .expect("sent");
    }
}

durable_testing::poke_conformance_tests!(Postgres);
