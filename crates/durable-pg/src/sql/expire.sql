-- Wakes instances whose deadline has come, the earliest first, at most $1, and says in which queues, how long until the
-- next deadline, and whether more are due (rule SIG-4). A timeout is a wake: the attempt stays.
--
-- Instances are locked in the order of their ids; one that somebody else holds, who may be waking it, is left for the
-- next time. Whoever comes second finds the fencing number moved on. The row of a wait that is over is removed.
-- A row of `deadlines` is never updated, so deleting by ctid is right.
--
-- Index: the primary key of deadlines, up to now (the statement's own time, as only a stable value can bound an index
-- scan); that of instances, one probe per deadline.
-- The commit may be lost in a crash of the server: then the deadlines are due again.
WITH asynchronous AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), due AS MATERIALIZED (
    SELECT deadline.*
    FROM asynchronous
    CROSS JOIN LATERAL (
        SELECT ctid AS place, instance_id, seq
        FROM durable.deadlines
        WHERE deadline_at <= statement_timestamp()
        ORDER BY deadline_at, instance_id
        -- One more than is taken tells whether any is left.
        LIMIT $1::bigint + 1
    ) AS deadline
), taken AS MATERIALIZED (
    SELECT taken.*
    FROM (SELECT * FROM due LIMIT $1::bigint) AS taken
    ORDER BY taken.instance_id
), owned AS MATERIALIZED (
    SELECT taken.place, taken.instance_id AS id
    FROM taken
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = taken.instance_id
            AND instance.seq = taken.seq
            AND instance.status IN ('awaiting_signal', 'awaiting_children')
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS instance
), written AS (
    UPDATE durable.instances AS instance
    SET seq = instance.seq + 1,
        status = 'active',
        eligible_at = (SELECT now FROM clock),
        deadline_fired = true
    WHERE instance.id = ANY (ARRAY(SELECT id FROM owned))
    RETURNING
        instance.id, instance.seq, instance.lane_id, instance.priority, instance.eligible_at,
        CASE
            WHEN instance.correlation_guard IS NOT NULL AND 'executing' <> ALL (instance.correlation_scope) THEN true
        END AS releases_key
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
), over AS MATERIALIZED (
    SELECT taken.place
    FROM taken
    LEFT JOIN LATERAL (
        SELECT instance.seq
        FROM durable.instances AS instance
        WHERE instance.id = taken.instance_id
        LIMIT 1
    ) AS instance ON true
    WHERE instance.seq IS DISTINCT FROM taken.seq
), removed AS (
    DELETE FROM durable.deadlines
    WHERE ctid = ANY (ARRAY(
        SELECT place FROM owned
        UNION ALL
        SELECT place FROM over
    ))
)
SELECT
    (SELECT count(*) FROM written) AS instances,
    (SELECT count(*) FROM over) AS over,
    (SELECT count(*) > $1::bigint FROM due) AS more,
    (
        SELECT array_agg(lane.queue)
        FROM written
        CROSS JOIN LATERAL (
            SELECT queue
            FROM durable.lanes
            WHERE id = abs(written.lane_id)
            LIMIT 1
        ) AS lane
    ) AS woken,
    (
        SELECT (extract(epoch FROM next.deadline_at - clock_timestamp()) * 1000000)::bigint
        FROM (
            SELECT deadline_at
            FROM durable.deadlines
            WHERE deadline_at > statement_timestamp()
            ORDER BY deadline_at
            LIMIT 1
        ) AS next
    ) AS next_us
