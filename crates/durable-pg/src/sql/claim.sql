-- Claims up to $4 instances of these lanes for a worker, in the order of priority and eligible time, as one
-- batch with one row in `claims` (rules CLAIM-1, CLAIM-2). Answers at least one row; without an instance it
-- carries only what is said of all: whether the worker is alive, and when the next row of `scheduled` is due.
--
-- Never waits: rows that another claim holds are skipped. How many to take from each lane is counted first,
-- without locks; with one lane there is nothing to count. A row of `ready` is never updated, so what this
-- snapshot sees is what is deleted, and deleting by ctid is right here; it is a TID scan whatever the
-- statistics say.
--
-- Index: the primary key of ready, from the mark of each lane on, which normally is its beginning; that of
-- scheduled, one probe per lane; that of instances, one probe per claimed row; for a row that
-- has any, its inbox and children, by the primary key of signals and instances_parent (rule CLAIM-5).
-- A worker that was declared dead claims nothing; one whose row is gone fails the foreign key of claims.
-- The commit may be lost in a crash of the server: then the rows are ready again, and outcomes of the lost
-- claim find no claim (rule CLAIM-4).
WITH asynchronous AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
), worker AS MATERIALIZED (
    SELECT worker.id
    FROM asynchronous
    CROSS JOIN durable.workers AS worker
    WHERE worker.id = $1::bigint AND worker.dead_at IS NULL
), lane AS MATERIALIZED (
    SELECT
        input.id,
        coalesce(input.priority, (-32768)::smallint) AS priority,
        coalesce(timestamptz '2000-01-01 00:00+00' + input.eligible_us * interval '1 microsecond', '-infinity')
            AS eligible_at,
        coalesce(input.instance_id, 0) AS instance_id,
        coalesce(timestamptz '2000-01-01 00:00+00' + input.due_us * interval '1 microsecond', '-infinity')
            AS due_at
    FROM unnest($3::integer[], $5::smallint[], $6::bigint[], $7::bigint[], $8::bigint[])
        AS input (id, priority, eligible_us, instance_id, due_us)
), quota AS MATERIALIZED (
    SELECT lane.*, $4::bigint AS instances
    FROM lane
    WHERE cardinality($3::integer[]) = 1
    UNION ALL
    SELECT lane.*, counted.instances
    FROM (
        SELECT merged.lane_id, count(*) AS instances
        FROM (
            SELECT head.lane_id
            FROM lane
            CROSS JOIN LATERAL (
                SELECT ready.lane_id, ready.priority, ready.eligible_at, ready.instance_id
                FROM durable.ready AS ready
                WHERE ready.lane_id = lane.id
                    AND (ready.priority, ready.eligible_at, ready.instance_id)
                        >= (lane.priority, lane.eligible_at, lane.instance_id)
                ORDER BY ready.priority, ready.eligible_at, ready.instance_id
                LIMIT $4::bigint
            ) AS head
            ORDER BY head.priority, head.eligible_at, head.instance_id
            LIMIT $4::bigint
        ) AS merged
        GROUP BY merged.lane_id
    ) AS counted
    JOIN lane ON lane.id = counted.lane_id
    WHERE cardinality($3::integer[]) > 1
), picked AS (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT head.ctid
        FROM worker
        CROSS JOIN quota
        CROSS JOIN LATERAL (
            SELECT ready.ctid
            FROM durable.ready AS ready
            WHERE ready.lane_id = quota.id
                AND (ready.priority, ready.eligible_at, ready.instance_id)
                    >= (quota.priority, quota.eligible_at, quota.instance_id)
            ORDER BY ready.priority, ready.eligible_at, ready.instance_id
            LIMIT quota.instances
            FOR UPDATE SKIP LOCKED
        ) AS head
    ))
    RETURNING instance_id, seq, lane_id, priority, eligible_at, releases_key, clock_timestamp() AS picked_at
), claimed AS (
    INSERT INTO durable.claims (worker_id, number, claimed_at, instance_ids, seqs)
    SELECT $1::bigint, $2::bigint, clock_timestamp(), array_agg(instance_id), array_agg(seq)
    FROM picked
    HAVING count(*) > 0
), releasing AS MATERIALIZED (
    -- A row that somebody else has locked keeps its key for one more step, as a claim waits for nobody.
    SELECT instance.id
    FROM (SELECT instance_id FROM picked WHERE releases_key ORDER BY instance_id) AS picked
    CROSS JOIN LATERAL (
        SELECT id
        FROM durable.instances
        WHERE id = picked.instance_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS instance
), released AS (
    UPDATE durable.instances
    SET correlation_guard = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM releasing))
)
SELECT
    common.alive,
    common.due_at,
    common.due_us,
    common.scan_us,
    claimed.*
FROM (
    SELECT
        EXISTS (SELECT FROM worker) AS alive,
        due.due_at,
        (extract(epoch FROM due.due_at - clock_timestamp()) * 1000000)::bigint AS due_us,
        (extract(epoch FROM
            coalesce((SELECT min(picked_at) FROM picked), clock_timestamp()) - statement_timestamp()
        ) * 1000000)::bigint AS scan_us
    FROM (
        SELECT min(first.eligible_at) AS due_at
        FROM lane
        CROSS JOIN LATERAL (
            SELECT scheduled.eligible_at
            FROM durable.scheduled AS scheduled
            WHERE scheduled.lane_id = lane.id AND scheduled.eligible_at >= lane.due_at
            ORDER BY scheduled.eligible_at
            LIMIT 1
        ) AS first
    ) AS due
) AS common
LEFT JOIN (
    SELECT
        picked.instance_id, picked.seq, picked.lane_id, picked.priority, picked.eligible_at,
        instance.step, instance.state, instance.attempt, instance.crashes, instance.visit, instance.coordination
    FROM picked
    CROSS JOIN LATERAL (
        SELECT
            step, state::text AS state, attempt, crashes, visit,
            CASE
                WHEN num_nonnulls(
                    parent_id, signals_received, awaited, children_left, deadline_fired, cancellation
                ) > 0 THEN json_build_object(
                    'parent', parent_id,
                    'received', coalesce(signals_received, 0),
                    'awaited', coalesce(awaited, '{}'),
                    'deadline_fired', coalesce(deadline_fired, false),
                    'cancel_requested', cancellation IS NOT NULL,
                    'inbox', CASE WHEN signals_received IS NOT NULL THEN (
                        SELECT json_agg(
                            json_build_object('number', number, 'name', name, 'payload', payload) ORDER BY number
                        )
                        FROM durable.signals
                        WHERE instance_id = picked.instance_id
                    ) END,
                    'children', CASE WHEN children_left IS NOT NULL THEN (
                        SELECT json_agg(
                            json_build_object(
                                'id', child.id, 'machine', lane.machine, 'version', lane.machine_version,
                                'status', child.status, 'result', child.result, 'failure', child.failure
                            )
                            ORDER BY child.id
                        )
                        FROM durable.instances AS child
                        CROSS JOIN LATERAL (
                            SELECT machine, machine_version
                            FROM durable.lanes
                            WHERE id = child.lane_id
                            LIMIT 1
                        ) AS lane
                        WHERE child.parent_id = picked.instance_id AND child.parent_fan_out = instances.fan_out
                    ) END
                )::text
            END AS coordination
        FROM durable.instances AS instances
        WHERE id = picked.instance_id
        LIMIT 1
    ) AS instance
) AS claimed ON true
ORDER BY claimed.priority, claimed.eligible_at, claimed.instance_id
