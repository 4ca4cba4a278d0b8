-- Moves rows whose time has come from `scheduled` to `ready`, the earliest first, at most $3 of each lane, and
-- says how many. Two nodes that promote the same lane skip each other's rows.
--
-- Index: the primary key of scheduled, from the mark of each lane on, up to now. The statement's own time, not
-- clock_timestamp(), as only a stable value can bound an index scan.
-- The commit may be lost in a crash of the server: then the rows are due again.
WITH asynchronous AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
), moved AS (
    DELETE FROM durable.scheduled
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM asynchronous
        CROSS JOIN unnest($1::integer[], $2::bigint[]) AS lane (id, mark_us)
        CROSS JOIN LATERAL (
            SELECT scheduled.ctid
            FROM durable.scheduled AS scheduled
            WHERE scheduled.lane_id = lane.id
                AND scheduled.eligible_at
                    >= coalesce(timestamptz '2000-01-01 00:00+00' + lane.mark_us * interval '1 microsecond', '-infinity')
                AND scheduled.eligible_at <= statement_timestamp()
            ORDER BY scheduled.eligible_at, scheduled.instance_id
            LIMIT $3::integer
            FOR UPDATE SKIP LOCKED
        ) AS due
    ))
    RETURNING lane_id, priority, eligible_at, instance_id, seq, releases_key
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, instance_id, seq, releases_key
    FROM moved
)
SELECT count(*) FROM moved
