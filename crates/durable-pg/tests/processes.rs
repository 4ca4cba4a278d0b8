//! Worker processes that are killed, frozen and restarted.
//!
//! A worker is this test program again, told by an environment variable to run [`worker_process`] and to do as
//! the lines of its standard input say.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use durable_core::store::{ClaimRequest, NewWorker, Store};
use durable_core::{ClaimNumber, Client, Engine, Insert, ProcessIdentity, QueueName, Status, WorkerId};
use durable_pg::PgStore;
use durable_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::fan_out::Branch;
use crate::trail::{Ledger, Trail, insert_trails, say, set_gate};

const LIMIT: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const WORKER: &str = "DURABLE_TEST_WORKER";

#[derive(Serialize, Deserialize)]
struct Orders {
    url: String,
    lease: Duration,
    gate_open: bool,
}

/// Not a test of its own: the worker that the tests below start.
#[test]
fn worker_process() {
    let Ok(orders) = std::env::var(WORKER) else { return };
    let orders: Orders = serde_json::from_str(&orders).expect("orders");
    set_gate(orders.gate_open);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let engine = runtime.block_on(async {
        let store = PgStore::connect(&orders.url).await.expect("connected");
        Engine::builder(store)
            .name("worker")
            .queue("default")
            .machine::<Trail>()
            .machine::<Branch>()
            .lease(orders.lease)
            .poll_interval(Duration::from_millis(100))
            .start()
            .await
            .expect("started")
    });
    say(&format!("ready {}", engine.worker()));
    // The end of the input is the end of the parent.
    for line in std::io::stdin().lock().lines() {
        match line.expect("a line").as_str() {
            "open" => set_gate(true),
            "who" => say(&format!("worker {}", engine.worker())),
            other => panic!("unknown order {other}"),
        }
    }
    runtime.block_on(engine.shutdown());
}

/// A worker process, killed with this value.
pub(crate) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
    id: String,
}

impl Worker {
    pub(crate) async fn start(url: &str, lease: Duration, gate_open: bool) -> Self {
        let orders = Orders {
            url: url.to_owned(),
            lease,
            gate_open,
        };
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "processes::worker_process", "--nocapture"])
            .env(WORKER, serde_json::to_string(&orders).expect("json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The test program's own words may stand before it on the line.
                if let Some((_, said)) = line.split_once("worker: ") {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        let orders = child.stdin.take();
        let mut worker = Self {
            child,
            orders,
            lines,
            id: String::new(),
        };
        worker.id = worker.hear("ready").await;
        worker
    }

    /// Waits for a line that starts with a word, and gives the rest of it.
    async fn hear(&mut self, word: &str) -> String {
        let heard = async {
            while let Some(line) = self.lines.recv().await {
                if let Some(rest) = line.strip_prefix(word) {
                    return rest.trim().to_owned();
                }
            }
            panic!("the worker ended without saying {word}");
        };
        tokio::time::timeout(LIMIT, heard)
            .await
            .unwrap_or_else(|_| panic!("never heard {word}"))
    }

    async fn hear_times(&mut self, word: &str, times: usize) {
        for _ in 0..times {
            self.hear(word).await;
        }
    }

    fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("not ended");
        writeln!(orders, "{order}").expect("told");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill")
            .args([signal, &id])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    /// SIGKILL; returns once it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// A clean shutdown; returns once it is gone.
    pub(crate) async fn end(mut self) {
        drop(self.orders.take());
        // The reader sees the end of the output.
        while tokio::time::timeout(LIMIT, self.lines.recv())
            .await
            .expect("it ends")
            .is_some()
        {}
        assert!(self.child.wait().expect("gone").success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Fixture {
    url: String,
    store: PgStore,
    client: Client,
    ledger: Ledger,
    _database: TestDatabase,
}

impl Fixture {
    async fn new() -> Self {
        let database = TestDatabase::new().await.expect("a database");
        let store = PgStore::connect(&database.url()).await.expect("connected");
        Self {
            url: database.url(),
            client: Client::new(store.clone()),
            ledger: Ledger::create(&database).await,
            store,
            _database: database,
        }
    }

    async fn live_workers(&self) -> Vec<i64> {
        sqlx::query_scalar("SELECT id FROM durable.workers WHERE dead_at IS NULL ORDER BY id")
            .fetch_all(self.ledger.pool())
            .await
            .expect("read")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_killed_process_runs_elsewhere_and_no_committed_step_runs_again() {
    // contract: CORE-1, CORE-2, CORE-3, LEASE-2
    let fixture = Fixture::new().await;
    let mut doomed = Worker::start(&fixture.url, Duration::from_secs(2), false).await;
    let ids = insert_trails(&fixture.client, &fixture.url, 40, 3).await;
    doomed.hear_times("waiting", ids.len()).await;
    // There before the other dies, so that only the end of the lease can give it the work.
    let heir = Worker::start(&fixture.url, LIMIT, true).await;
    let killed = i64::from(doomed.child.id());
    doomed.kill();
    for id in &ids {
        fixture
            .client
            .result::<u32>(*id, LIMIT)
            .await
            .expect("done elsewhere");
        assert_eq!(fixture.ledger.rounds(*id).await, [(0, 0), (1, 0), (1, 1), (2, 0)]);
    }
    for run in fixture.ledger.runs().await {
        assert_eq!(run.crashes, run.attempt, "{run:?}");
        assert_eq!(
            run.process == killed,
            (run.round, run.attempt) < (1, 1),
            "{run:?}"
        );
    }
    heir.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_process_takes_back_the_work_of_its_dead_predecessor_at_once() {
    // contract: LEASE-3, CORE-3
    let fixture = Fixture::new().await;
    let mut dead = Worker::start(&fixture.url, HOUR, false).await;
    let ids = insert_trails(&fixture.client, &fixture.url, 10, 2).await;
    dead.hear_times("waiting", ids.len()).await;
    dead.kill();
    // The lease has an hour to run: only the proof of death frees the work.
    let restarted = Worker::start(&fixture.url, HOUR, true).await;
    for id in &ids {
        let process: u32 = fixture.client.result(*id, LIMIT).await.expect("done");
        assert_eq!(process, restarted.child.id());
        assert_eq!(fixture.ledger.rounds(*id).await, [(0, 0), (1, 0), (1, 1)]);
    }
    restarted.end().await;
}

/// Registers a worker of some process and lets it claim one instance.
async fn claims_as(fixture: &Fixture, process: ProcessIdentity) -> WorkerId {
    let worker = NewWorker {
        name: "worker".to_owned(),
        lease: HOUR,
        process: Some(process),
        roles: durable_core::store::Roles::ALL,
    };
    let worker = fixture.store.register(worker).await.expect("registered");
    let entry = Trail::insert(&fixture.url, 2).encode().expect("valid");
    let request = ClaimRequest {
        worker,
        number: ClaimNumber::new(1),
        queue: QueueName::new("default").expect("valid"),
        machines: Arc::new([entry.machine]),
        limit: 1,
    };
    assert_eq!(
        fixture
            .store
            .claim(request)
            .await
            .expect("claimed")
            .instances
            .len(),
        1
    );
    worker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_process_that_lives_or_may_live_is_never_taken_back_early() {
    // contract: LEASE-3
    let fixture = Fixture::new().await;
    let mut living = Worker::start(&fixture.url, HOUR, false).await;
    let held = insert_trails(&fixture.client, &fixture.url, 5, 2).await;
    living.hear_times("waiting", held.len()).await;
    let me = ProcessIdentity::current().expect("known on Linux");
    // Same host name and process id as a process that is not here: another container, another machine.
    let container = ProcessIdentity {
        namespace: "pid:[1]".to_owned(),
        pid: 1,
        started: 1,
        ..me.clone()
    };
    let machine = ProcessIdentity {
        boot: "another".to_owned(),
        pid: 1,
        started: 1,
        ..me.clone()
    };
    // The living worker must not take what the forged ones are to claim.
    living.signal("-STOP");
    let claimed = insert_trails(&fixture.client, &fixture.url, 3, 2).await;
    for process in [container, machine, me] {
        claims_as(&fixture, process).await;
    }
    let before = fixture.live_workers().await;
    // Same name, same host; its start looks for dead predecessors before it says that it is ready.
    let second = Worker::start(&fixture.url, HOUR, true).await;
    living.signal("-CONT");
    let after = fixture.live_workers().await;
    assert!(
        before.iter().all(|worker| after.contains(worker)),
        "{before:?} {after:?}"
    );
    for id in held.iter().chain(&claimed) {
        let snapshot = fixture.client.snapshot(*id).await.expect("read").expect("there");
        assert_eq!((snapshot.status, snapshot.attempt), (Status::Executing, 0));
    }
    living.tell("open");
    for id in &held {
        let process: u32 = fixture.client.result(*id, LIMIT).await.expect("done");
        assert_eq!(process, living.child.id());
        assert_eq!(fixture.ledger.rounds(*id).await, [(0, 0), (1, 0)]);
    }
    second.end().await;
    living.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_frozen_past_its_lease_commits_nothing_and_goes_on_as_a_new_worker() {
    // contract: LEASE-4, CLAIM-4
    let fixture = Fixture::new().await;
    let mut frozen = Worker::start(&fixture.url, Duration::from_secs(1), false).await;
    let ids = insert_trails(&fixture.client, &fixture.url, 10, 2).await;
    frozen.hear_times("waiting", ids.len()).await;
    let other = Worker::start(&fixture.url, LIMIT, true).await;
    frozen.signal("-STOP");
    for id in &ids {
        fixture
            .client
            .result::<u32>(*id, LIMIT)
            .await
            .expect("done elsewhere");
    }
    let others_process = other.child.id();
    other.end().await;
    frozen.signal("-CONT");
    frozen.hear_times("tripped", ids.len()).await;
    frozen.tell("open");
    let later = fixture
        .client
        .insert(Trail::insert(&fixture.url, 2))
        .await
        .expect("inserted")
        .id();
    let process: u32 = fixture.client.result(later, LIMIT).await.expect("it works on");
    assert_eq!(process, frozen.child.id());
    frozen.tell("who");
    assert_ne!(frozen.hear("worker").await, frozen.id, "as a new worker");
    // Its shutdown waits for every outcome that it offered.
    frozen.end().await;
    for id in &ids {
        let process: u32 = fixture.client.result(*id, LIMIT).await.expect("done");
        assert_eq!(
            process, others_process,
            "the outcome of the frozen process came too late"
        );
        assert_eq!(fixture.ledger.rounds(*id).await, [(0, 0), (1, 0), (1, 1)]);
    }
    assert_eq!(fixture.live_workers().await, [0_i64; 0], "nothing is left behind");
}

#[derive(Serialize, Deserialize)]
struct Blocks;

/// What a blocking step waits for, without giving its thread back.
static UNBLOCK: std::sync::OnceLock<std::sync::Mutex<std::sync::mpsc::Receiver<()>>> =
    std::sync::OnceLock::new();

impl durable_core::Job for Blocks {
    const NAME: &'static str = "blocks";
    type Output = u32;

    async fn perform(&self, context: &durable_core::Context) -> Result<u32, durable_core::JobError> {
        if let Some(unblock) = UNBLOCK.get() {
            unblock.lock().expect("whole").recv_timeout(LIMIT)?;
        }
        Ok(context.attempt())
    }
}

#[tokio::test]
async fn a_step_that_blocks_the_only_thread_for_longer_than_the_lease_costs_no_lease() {
    // contract: LEASE-1
    let fixture = Fixture::new().await;
    let (unblock, blocked) = std::sync::mpsc::channel();
    assert!(UNBLOCK.set(std::sync::Mutex::new(blocked)).is_ok());
    let engine = Engine::builder(fixture.store.clone())
        .queue("default")
        .job::<Blocks>()
        .lease(Duration::from_millis(400))
        .start()
        .await
        .expect("started");
    let id = fixture
        .client
        .insert(Insert::job(Blocks))
        .await
        .expect("inserted")
        .id();
    let (url, worker) = (fixture.url.clone(), engine.worker());
    // From a thread and runtime of its own: reaps all the time, until the lease has been over three times but
    // for heartbeats.
    let reaper = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let store = PgStore::connect(&url).await.expect("connected");
            let mut reaped = 0;
            loop {
                reaped += store.reap(100).await.expect("reaped").instances;
                let old: Option<bool> = sqlx::query_scalar(
                    "SELECT lease_until - started_at > lease * 4 FROM durable.workers \
                     WHERE id = $1 AND EXISTS (SELECT FROM durable.claims WHERE worker_id = $1)",
                )
                .bind(worker.get())
                .fetch_optional(store.pool())
                .await
                .expect("read");
                if old == Some(true) || reaped > 0 {
                    break;
                }
            }
            unblock.send(()).expect("the step waits");
            reaped
        })
    });
    let attempt: u32 = fixture.client.result(id, LIMIT).await.expect("done");
    assert_eq!((attempt, reaper.join().expect("no panic")), (0, 0));
    assert_eq!(engine.worker(), worker);
    engine.shutdown().await;
}
