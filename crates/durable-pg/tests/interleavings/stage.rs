//! Scripted sessions: two calls of the store, in both orders and with either of them held in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use durable_core::store::{
    ClaimRequest, ClaimedInstance, Commit, CommitFate, NewWorker, Roles, Snapshot, Transition,
};
use durable_core::{ClaimNumber, InstanceId, QueueName, Store as _, WorkerId};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Mutex;

use super::act::{Act, Answer, done, entry, run, settle};

/// How two calls meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    FirstThenSecond,
    SecondThenFirst,
    /// The second runs while the first is held at this moment.
    SecondWhileFirst(&'static str),
    FirstWhileSecond(&'static str),
}

pub(super) const ORDERS: [Order; 6] = [
    Order::FirstThenSecond,
    Order::SecondThenFirst,
    Order::SecondWhileFirst("write"),
    Order::SecondWhileFirst("commit"),
    Order::FirstWhileSecond("write"),
    Order::FirstWhileSecond("commit"),
];

/// What the other call did while one was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// It was seen to wait for the held one.
    Waited,
    /// It was answered.
    Passed,
    /// It was told to try again.
    SetAside,
    /// Neither was held.
    Nothing,
}

/// The last answers of both, and what happened while one was held.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Played {
    pub(super) first: Answer,
    pub(super) second: Answer,
    pub(super) meanwhile: Meanwhile,
}

pub(super) struct Stage {
    _database: TestDatabase,
    /// Holds the lock at which a held call stops.
    director: Mutex<PgConnection>,
    /// Its calls can be held.
    held: PgStore,
    pub(super) free: PgStore,
    numbers: AtomicI64,
}

impl Stage {
    pub(super) async fn new() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let mut director = PgConnection::connect(&database.url()).await.expect("connected");
        let prepared = sqlx::raw_sql(include_str!("stage.sql"))
            .execute(&mut director)
            .await;
        prepared.expect("prepared");
        let url = database.url();
        let separator = if url.contains('?') { '&' } else { '?' };
        let held = format!("{url}{separator}options=-c%20stage.session%3Dheld");
        Self {
            held: PgStore::connect(&held).await.expect("connected"),
            free: PgStore::connect(&url).await.expect("connected"),
            director: Mutex::new(director),
            _database: database,
            numbers: AtomicI64::new(0),
        }
    }

    pub(super) async fn worker(&self) -> WorkerId {
        let worker = NewWorker {
            name: "stage".to_owned(),
            lease: Duration::from_secs(3600),
            process: None,
            roles: Roles::ALL,
        };
        self.free.register(worker).await.expect("registered")
    }

    pub(super) async fn insert(&self) -> InstanceId {
        let inserted = self.free.insert(vec![entry()]).await.expect("inserted");
        inserted[0].id()
    }

    pub(super) fn claiming(&self, worker: WorkerId, limit: usize) -> ClaimRequest {
        ClaimRequest {
            worker,
            number: ClaimNumber::new(self.numbers.fetch_add(1, Ordering::Relaxed) + 1),
            queue: QueueName::new("default").expect("valid"),
            machines: Arc::new([entry().machine]),
            limit,
        }
    }

    /// Inserts an instance and claims it; nothing else may be claimable.
    pub(super) async fn executing(&self, worker: WorkerId) -> ClaimedInstance {
        self.insert().await;
        self.claim(worker, 1).await.remove(0)
    }

    pub(super) async fn claim(&self, worker: WorkerId, limit: usize) -> Vec<ClaimedInstance> {
        let claimed = self.free.claim(self.claiming(worker, limit)).await;
        claimed.expect("claimed").instances
    }

    /// Commits an outcome that nothing stands in the way of.
    pub(super) async fn commit(&self, worker: WorkerId, claimed: &ClaimedInstance, transition: Transition) {
        let answer = run(&self.free, Act::Commit(worker, Commit::of(claimed, transition))).await;
        assert_eq!(answer, Answer::Commit(CommitFate::Committed));
    }

    pub(super) async fn snapshot(&self, id: InstanceId) -> Snapshot {
        let mut read = self.free.snapshots(vec![id]).await.expect("read");
        read.remove(0).expect("there")
    }

    /// Plays two calls, and checks that the store is whole afterwards.
    pub(super) async fn play(&self, order: Order, first: Act, second: Act) -> Played {
        let played = match order {
            Order::FirstThenSecond => {
                let first = settle(&self.free, first).await;
                let second = settle(&self.free, second).await;
                Played {
                    first,
                    second,
                    meanwhile: Meanwhile::Nothing,
                }
            }
            Order::SecondThenFirst => {
                let second = settle(&self.free, second).await;
                let first = settle(&self.free, first).await;
                Played {
                    first,
                    second,
                    meanwhile: Meanwhile::Nothing,
                }
            }
            Order::SecondWhileFirst(moment) => {
                let (first, second, meanwhile) = self.overlap(moment, first, second).await;
                Played {
                    first,
                    second,
                    meanwhile,
                }
            }
            Order::FirstWhileSecond(moment) => {
                let (second, first, meanwhile) = self.overlap(moment, second, first).await;
                Played {
                    first,
                    second,
                    meanwhile,
                }
            }
        };
        self.is_whole(&format!("{order:?}: {played:?}")).await;
        played
    }

    async fn overlap(&self, moment: &str, held: Act, free: Act) -> (Answer, Answer, Meanwhile) {
        let mut director = self.director.lock().await;
        sqlx::query("UPDATE stage.pause SET moment = $1")
            .bind(moment)
            .execute(&mut *director)
            .await
            .expect("set");
        execute(&mut director, "SELECT pg_advisory_lock(1)").await;
        let store = self.held.clone();
        let holding = tokio::spawn(async move { run(&store, held).await });
        let own: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(&mut *director)
            .await
            .expect("read");
        let mut holder = None;
        while holder.is_none() && !holding.is_finished() {
            holder = blocked_by(&mut director, own).await;
        }
        let store = self.free.clone();
        let again = free.clone();
        let meeting = tokio::spawn(async move { run(&store, free).await });
        let mut waited = false;
        while let Some(holder) = holder
            && !waited
            && !meeting.is_finished()
        {
            waited = blocked_by(&mut director, holder).await.is_some();
        }
        let mut early = None;
        let mut meeting = Some(meeting);
        // Asked before the held one goes on.
        if !waited && let Some(meeting) = meeting.take() {
            early = Some(meeting.await.expect("answered"));
        }
        execute(&mut director, "SELECT pg_advisory_unlock(1)").await;
        let held = holding.await.expect("answered");
        assert_ne!(held, Answer::TryAgain, "nobody stood in the way of the held call");
        let meanwhile = match (&early, holder) {
            (_, None) => Meanwhile::Nothing,
            (None, _) => Meanwhile::Waited,
            (Some(Answer::TryAgain), _) => Meanwhile::SetAside,
            (Some(_), _) => Meanwhile::Passed,
        };
        let answer = match (early, meeting) {
            (Some(answer), _) => answer,
            (None, Some(meeting)) => meeting.await.expect("answered"),
            (None, None) => Answer::TryAgain,
        };
        let answer = match answer {
            Answer::TryAgain => settle(&self.free, again).await,
            answer => answer,
        };
        (held, answer, meanwhile)
    }

    /// Runs a call while a row is held by a statement of the director, at which the call must be seen to wait; then
    /// something else; then lets go. What the call was told last.
    pub(super) async fn behind(&self, lock: &str, call: Act, meanwhile: Act) -> (Answer, Answer) {
        let mut director = self.director.lock().await;
        let own: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(&mut *director)
            .await
            .expect("read");
        execute(&mut director, "BEGIN").await;
        execute(&mut director, lock).await;
        let (store, again) = (self.free.clone(), call.clone());
        let calling = tokio::spawn(async move { run(&store, call).await });
        while blocked_by(&mut director, own).await.is_none() {
            assert!(!calling.is_finished(), "it did not wait");
        }
        let passed = run(&self.free, meanwhile).await;
        execute(&mut director, "ROLLBACK").await;
        let answer = match calling.await.expect("answered") {
            Answer::TryAgain => settle(&self.free, again).await,
            answer => answer,
        };
        drop(director);
        self.is_whole(&format!("{passed:?}, then {answer:?}")).await;
        (answer, passed)
    }

    async fn is_whole(&self, played: &str) {
        let mut director = self.director.lock().await;
        let faults: Vec<String> = sqlx::query_scalar(include_str!("whole.sql"))
            .fetch_all(&mut *director)
            .await
            .expect("read");
        assert!(faults.is_empty(), "{played}: {faults:#?}");
    }

    /// Ends everything, as workers would after a crash of all of them: nothing may be stranded.
    pub(super) async fn finish(&self, ids: &[InstanceId]) {
        let mut director = self.director.lock().await;
        let workers: Vec<i64> = sqlx::query_scalar("SELECT id FROM durable.workers")
            .fetch_all(&mut *director)
            .await
            .expect("read");
        drop(director);
        let workers = workers.into_iter().map(WorkerId::new).collect();
        self.free.declare_dead(workers).await.expect("declared");
        while self.free.reap(100).await.expect("reaped").more {}
        let worker = self.worker().await;
        loop {
            let mut claimed = self.claim(worker, 100).await;
            if claimed.is_empty() {
                self.free.expire(100).await.expect("expired");
                for id in ids {
                    run(&self.free, Act::Deliver(*id, "paid")).await;
                }
                claimed = self.claim(worker, 100).await;
            }
            if claimed.is_empty() {
                break;
            }
            for one in &claimed {
                let cancelled = one.coordination.cancel_requested;
                let end = if cancelled {
                    Transition::cancelled()
                } else {
                    done()
                };
                self.commit(worker, one, end).await;
            }
        }
        for id in ids {
            let status = self.snapshot(*id).await.status;
            assert!(status.is_terminal(), "instance {id} is stranded: {status:?}");
        }
        self.is_whole("at the end").await;
    }
}

/// Somebody who waits for a session.
async fn blocked_by(director: &mut PgConnection, pid: i32) -> Option<i32> {
    sqlx::query_scalar(
        "SELECT pid FROM pg_stat_activity \
         WHERE datname = current_database() AND $1 = ANY (pg_blocking_pids(pid)) LIMIT 1",
    )
    .bind(pid)
    .fetch_optional(director)
    .await
    .expect("read")
}

async fn execute(director: &mut PgConnection, statement: &str) {
    let statement = sqlx::AssertSqlSafe(statement);
    sqlx::raw_sql(statement)
        .execute(director)
        .await
        .expect("executed");
}
