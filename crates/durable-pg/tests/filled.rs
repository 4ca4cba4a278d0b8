//! Fills a database with rows in every place that an instance can be in, by plain SQL, so that large numbers
//! of them cost seconds.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

/// How many instances there are of each kind.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// Ready in lane 1, and as many in lane 2: machines that the worker knows.
    pub(crate) ready: i64,
    /// Ready in lane 3, of a machine that the worker does not know, older and more urgent than the others.
    pub(crate) foreign: i64,
    /// In lane 1, for later, more urgent than what is ready.
    pub(crate) scheduled: i64,
    /// In lane 4, scheduled, and due by now.
    pub(crate) overdue: i64,
    /// Held by worker 1, in claims of [`BATCH`].
    pub(crate) executing: i64,
    /// Held by worker 2, which is dead, in claims of [`BATCH`].
    pub(crate) orphaned: i64,
    /// Done, in lists of [`BATCH`].
    pub(crate) terminal: i64,
    /// In lane 1, waiting for the signal `go` with a deadline that is over, each a child of an executing instance, with
    /// another signal in its inbox; and ten ready ones in lane 5, with an inbox and with these as their children.
    pub(crate) parked: i64,
}

/// How many instances a claim, or a list of finished ones, names.
pub(crate) const BATCH: i64 = 20;

/// The ids of each kind begin after these.
pub(crate) const READY: i64 = 1_000_000;
pub(crate) const FOREIGN: i64 = 3_000_000;
pub(crate) const SCHEDULED: i64 = 4_000_000;
pub(crate) const OVERDUE: i64 = 5_000_000;
pub(crate) const EXECUTING: i64 = 6_000_000;
pub(crate) const ORPHANED: i64 = 7_000_000;
pub(crate) const TERMINAL: i64 = 8_000_000;
pub(crate) const PARKED: i64 = 9_000_000;
pub(crate) const JOINING: i64 = 10_000_000;

/// The lanes and the two workers that the rows belong to. Every tenth live instance has a correlation key.
pub(crate) async fn prepare(connection: &mut PgConnection) {
    run(
        connection,
        "INSERT INTO durable.lanes (id, queue, machine, machine_version) \
         SELECT n, 'default', 'machine-' || n, 0 FROM generate_series(1, 5) AS n",
    )
    .await;
    run(
        connection,
        "INSERT INTO durable.workers (id, started_at, lease_until, lease, dead_at, name, reaper, collector) VALUES \
         (1, now(), now() + interval '1 day', interval '1 day', NULL, 'alive', true, true), \
         (2, now(), now() - interval '1 day', interval '1 day', now(), 'dead', true, true)",
    )
    .await;
    run(connection, "SELECT setval('durable.instances_id_seq', 900000000)").await;
    run(connection, "SELECT setval('durable.workers_id_seq', 2)").await;
    run(connection, "SELECT setval('durable.lanes_id_seq', 5)").await;
}

/// Adds the rows; `after` is added to every id and claim number, so that it can be done twice.
pub(crate) async fn fill(connection: &mut PgConnection, rows: Rows, after: i64) {
    let old = "timestamptz '2020-01-01 00:00+00'";
    let later = "timestamptz '2090-01-01 00:00+00'";
    place(connection, "ready", READY + after, rows.ready, 1, 0, old).await;
    place(
        connection,
        "ready",
        READY + after + 1_000_000,
        rows.ready,
        2,
        0,
        old,
    )
    .await;
    place(connection, "ready", FOREIGN + after, rows.foreign, 3, -100, old).await;
    place(
        connection,
        "scheduled",
        SCHEDULED + after,
        rows.scheduled,
        1,
        -50,
        later,
    )
    .await;
    place(connection, "scheduled", OVERDUE + after, rows.overdue, 4, 0, old).await;
    instances(connection, EXECUTING + after, rows.executing, 1, 0, old, "active").await;
    claims(connection, 1, EXECUTING + after, rows.executing, after).await;
    instances(connection, ORPHANED + after, rows.orphaned, 1, 0, old, "active").await;
    claims(connection, 2, ORPHANED + after, rows.orphaned, after).await;
    coordinated(connection, rows.parked, after, old).await;
    instances(connection, TERMINAL + after, rows.terminal, 1, 0, old, "done").await;
    run(
        connection,
        &format!(
            "INSERT INTO durable.finished (finished_at, status, instances, instance_ids) \
             SELECT {old} + (n / {BATCH}) * interval '1 second', 'done', count(*), array_agg({TERMINAL} + {after} + n + 1) \
             FROM generate_series(0, {count} - 1) AS n GROUP BY n / {BATCH}",
            count = rows.terminal
        ),
    )
    .await;
}

/// What is parked, and what has joined children.
async fn coordinated(connection: &mut PgConnection, count: i64, after: i64, old: &str) {
    let (parked, joining) = (PARKED + after, JOINING + after);
    instances(connection, parked, count, 1, 0, old, "active").await;
    place(connection, "ready", joining, 10, 5, 0, old).await;
    for statement in [
        format!(
            "UPDATE durable.instances SET status = 'awaiting_signal', awaited = '{{go}}', deadline_at = eligible_at, \
             signals_received = 1, parent_id = CASE WHEN id <= {parked} + 30 THEN {joining} + 1 + id % 10 \
             ELSE {EXECUTING} + {after} + id % 1000 END, parent_fan_out = 1 \
             WHERE id > {parked} AND id <= {parked} + {count}"
        ),
        format!(
            "UPDATE durable.instances SET signals_received = 1, fan_out = 1, children_left = 0 \
             WHERE id > {joining} AND id <= {joining} + 10"
        ),
        format!(
            "INSERT INTO durable.signals (instance_id, number, received_at, name, payload) \
             SELECT id, 1, now(), 'other', '1' FROM durable.instances \
             WHERE id > {parked} AND id <= {joining} + 10 AND signals_received = 1"
        ),
        format!(
            "INSERT INTO durable.signal_keys (instance_id, deduplication_key) \
             SELECT instance_id, 'key' FROM durable.signals WHERE instance_id > {parked} AND instance_id <= {joining} + 10"
        ),
        format!(
            "INSERT INTO durable.deadlines (deadline_at, instance_id, seq) \
             SELECT deadline_at, id, 0 FROM durable.instances WHERE id > {parked} AND id <= {parked} + {count}"
        ),
    ] {
        run(connection, &statement).await;
    }
}

/// Makes everything terminal, as a queue that was worked off leaves it, and leaves the dead rows where they were.
pub(crate) async fn finish_everything(connection: &mut PgConnection) {
    for statement in [
        "UPDATE durable.instances SET status = 'done', finished_at = now(), correlation_guard = NULL",
        "DELETE FROM durable.ready",
        "DELETE FROM durable.scheduled",
        "DELETE FROM durable.claims",
        "DELETE FROM durable.signals",
        "DELETE FROM durable.signal_keys",
        "DELETE FROM durable.deadlines",
    ] {
        run(connection, statement).await;
    }
}

async fn instances(
    connection: &mut PgConnection,
    first: i64,
    count: i64,
    lane: i32,
    priority: i16,
    from: &str,
    status: &str,
) {
    let (finished, key) = match status {
        "active" => (
            "NULL::timestamptz".to_owned(),
            "CASE WHEN n % 10 = 0 THEN 'key-' || (n + FIRST) END".replace("FIRST", &first.to_string()),
        ),
        _ => (
            format!("{from} + n / {BATCH} * interval '1 second'"),
            "NULL::text".to_owned(),
        ),
    };
    run(
        connection,
        &format!(
            "INSERT INTO durable.instances (id, inserted_at, eligible_at, finished_at, lane_id, status, priority, \
             step, state, correlation_key, correlation_guard) \
             SELECT {first} + n, {from}, {from} + n * interval '1 millisecond', {finished}, {lane}, '{status}', \
             {priority}, 'run', '{{}}', {key}, {key} FROM generate_series(1, {count}) AS n"
        ),
    )
    .await;
}

async fn place(
    connection: &mut PgConnection,
    table: &str,
    first: i64,
    count: i64,
    lane: i32,
    priority: i16,
    from: &str,
) {
    instances(connection, first, count, lane, priority, from, "active").await;
    run(
        connection,
        &format!(
            "INSERT INTO durable.{table} (eligible_at, instance_id, lane_id, seq, priority) \
             SELECT {from} + n * interval '1 millisecond', {first} + n, {lane}, 0, {priority} \
             FROM generate_series(1, {count}) AS n"
        ),
    )
    .await;
}

async fn claims(connection: &mut PgConnection, worker: i64, first: i64, count: i64, after: i64) {
    run(
        connection,
        &format!(
            "INSERT INTO durable.claims (worker_id, number, claimed_at, instance_ids, seqs) \
             SELECT {worker}, {after} + n / {BATCH} + 1, now(), array_agg({first} + n + 1), array_agg(0) \
             FROM generate_series(0, {count} - 1) AS n GROUP BY n / {BATCH}"
        ),
    )
    .await;
}

/// Runs one statement that was made here.
pub(crate) async fn run(connection: &mut PgConnection, statement: &str) {
    let outcome = connection.execute(AssertSqlSafe(statement)).await;
    if let Err(error) = outcome {
        panic!("{error}: {statement}");
    }
}
