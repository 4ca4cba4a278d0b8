//! A server that counts: every statement, its transactions and its log, by its own view `pg_stat_statements`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{
    ClaimRequest, ClaimedInstance, Commit, CommitFate, CommitRequest, NewInstance, NewWorker, Transition,
};
use durable_core::{
    ClaimNumber, Fence, Insert, InstanceId, Json, MachineKey, QueueName, Store as _, WorkerId,
};
use durable_pg::PgStore;
use durable_testing::servers::{Durability, Shutdown};
use durable_testing::{PostgresServer, TestDatabase};
use sqlx::{PgPool, Row as _};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::store::Noop;

/// What the server counted for one text since the last reset.
pub(crate) struct Count {
    /// The text, with its comment.
    pub(crate) text: String,
    pub(crate) calls: i64,
    /// Bytes of the write-ahead log, without whole pages after a checkpoint.
    pub(crate) log_bytes: i64,
}

impl fmt::Debug for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.text.lines().next().unwrap_or_default();
        write!(formatter, "{} times: {first}", self.calls)
    }
}

/// A database on the counting server, which the holder has for itself, and a store with one worker.
pub(crate) struct Counted {
    pub(crate) store: PgStore,
    pub(crate) worker: WorkerId,
    /// Connections that are not counted, as they are to the maintenance database.
    pub(crate) maintenance: PgPool,
    pub(crate) database: TestDatabase,
    _alone: MutexGuard<'static, ()>,
}

/// Started once for all tests of this process; ends with it.
async fn server() -> &'static PostgresServer {
    static SERVER: OnceCell<PostgresServer> = OnceCell::const_new();
    SERVER
        .get_or_init(|| async {
            let mut server = PostgresServer::start_own(Durability::Full)
                .await
                .expect("a server");
            let pool = PgPool::connect(server.url()).await.expect("connected");
            for statement in [
                // From the server's contrib package, which some distributions ship apart.
                "CREATE EXTENSION pg_stat_statements",
                "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'",
                // The log is flushed by the statements that wait for it, and hardly ever by the server for itself.
                "ALTER SYSTEM SET wal_writer_delay = '10s'",
                "ALTER SYSTEM SET wal_writer_flush_after = '1GB'",
                "ALTER SYSTEM SET full_page_writes = off",
                "ALTER SYSTEM SET autovacuum = off",
            ] {
                sqlx::raw_sql(statement).execute(&pool).await.expect(statement);
            }
            pool.close().await;
            server.restart(Shutdown::Fast).await.expect("restarted");
            server
        })
        .await
}

impl Counted {
    pub(crate) async fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let server = server().await;
        let database = TestDatabase::on(server).await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        let worker = NewWorker {
            name: "test".to_owned(),
            lease: Duration::from_secs(3600),
            process: None,
            roles: durable_core::store::Roles::ALL,
        };
        let worker = store.register(worker).await.expect("registered");
        let maintenance = PgPool::connect(server.url()).await.expect("connected");
        let counted = Self {
            store,
            worker,
            maintenance,
            database,
            _alone: alone,
        };
        // The first use of a lane looks it up, once per process.
        counted.claim(1, 1).await;
        counted
    }

    /// Forgets what was counted.
    pub(crate) async fn reset(&self) {
        sqlx::raw_sql("SELECT pg_stat_statements_reset()")
            .execute(&self.maintenance)
            .await
            .expect("reset");
    }

    /// What this database has run since the last reset. `BEGIN` and `COMMIT` count too, so that one statement is
    /// one transaction.
    pub(crate) async fn counts(&self) -> Vec<Count> {
        let rows = sqlx::query(
            "SELECT statement.query, statement.calls, statement.wal_bytes::bigint AS log_bytes \
             FROM pg_stat_statements AS statement \
             JOIN pg_database AS database ON database.oid = statement.dbid \
             WHERE database.datname = $1 \
             ORDER BY statement.query",
        )
        .bind(self.database.name())
        .fetch_all(&self.maintenance)
        .await
        .expect("counted");
        rows.iter()
            .map(|row| Count {
                text: row.get("query"),
                calls: row.get("calls"),
                log_bytes: row.get("log_bytes"),
            })
            .collect()
    }

    /// How many statements were run since the last reset.
    pub(crate) async fn statements(&self) -> i64 {
        self.counts().await.iter().map(|count| count.calls).sum()
    }

    /// How many of them hold this text.
    pub(crate) async fn calls(&self, part: &str) -> i64 {
        let counts = self.counts().await;
        counts
            .iter()
            .filter(|count| count.text.contains(part))
            .map(|count| count.calls)
            .sum()
    }

    /// How many bytes of log the statements since the last reset wrote.
    pub(crate) async fn log_bytes(&self) -> i64 {
        self.counts().await.iter().map(|count| count.log_bytes).sum()
    }

    pub(crate) async fn insert(&self, count: usize, text: &str) -> Vec<InstanceId> {
        let entries: Vec<NewInstance> = (0..count)
            .map(|_| {
                Insert::job(Noop {
                    text: text.to_owned(),
                })
                .encode()
                .expect("valid")
            })
            .collect();
        let inserted = self.store.insert(entries).await.expect("inserted");
        inserted.into_iter().map(durable_core::Inserted::id).collect()
    }

    pub(crate) async fn claim(&self, number: i64, limit: usize) -> Vec<(InstanceId, Fence)> {
        let claimed = self.claim_instances(number, limit).await;
        claimed
            .iter()
            .map(|instance| (instance.id, instance.fence))
            .collect()
    }

    /// As [`claim`](Self::claim), with all that a claim brings.
    pub(crate) async fn claim_instances(&self, number: i64, limit: usize) -> Vec<ClaimedInstance> {
        let machine: MachineKey = Insert::job(Noop { text: String::new() })
            .encode()
            .expect("valid")
            .machine;
        let request = ClaimRequest {
            worker: self.worker,
            number: ClaimNumber::new(number),
            queue: QueueName::new("default").expect("valid"),
            machines: Arc::new([machine]),
            limit,
        };
        self.store.claim(request).await.expect("claimed").instances
    }

    /// Commits the same outcome for all, and forgets these claims.
    pub(crate) async fn commit(
        &self,
        claimed: &[(InstanceId, Fence)],
        transition: &Transition,
        closed: &[i64],
    ) {
        let commits: Vec<Commit> = claimed
            .iter()
            .map(|&(id, fence)| Commit {
                id,
                fence,
                parent: None,
                received: 0,
                transition: transition.clone(),
                limits: None,
            })
            .collect();
        self.commit_all(commits, closed).await;
    }

    /// Commits outcomes, all of which must stand, and forgets these claims.
    pub(crate) async fn commit_all(&self, commits: Vec<Commit>, closed: &[i64]) {
        let closed = closed.iter().copied().map(ClaimNumber::new).collect();
        let committed = self
            .store
            .commit(CommitRequest::new(self.worker, commits, closed))
            .await
            .expect("committed");
        assert!(
            committed.fates.iter().all(|fate| *fate == CommitFate::Committed),
            "{committed:?}"
        );
    }
}

pub(crate) fn done() -> Transition {
    Transition::Done {
        result: Json::encode(&()).expect("valid"),
    }
}

/// The same step again, at once, with the state that it had.
pub(crate) fn again() -> Transition {
    Transition::Retry {
        state: None,
        delay: Duration::ZERO,
        failure: None,
    }
}
