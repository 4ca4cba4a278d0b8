-- Takes instances that do not execute out of their place, so that commit.sql can end them as cancelled in the same
-- transaction; marks those that execute, and tells their workers through the next heartbeat (rule CANCEL-1). $2 says why.
-- Their locks are held, and this snapshot came after them. One row for each instance that is there.
--
-- Only a claim takes a place row without the lock of the instance: the delete waits for it, and then finds nothing. Place
-- rows and deadlines are never updated, so deleting by ctid is right.
-- Index: the primary keys of instances, ready, scheduled and deadlines, one probe each per instance; those of limit_keys
-- and waiting for one with limits.
WITH target AS MATERIALIZED (
    SELECT instance.*
    FROM unnest($1::bigint[]) AS input (id)
    CROSS JOIN LATERAL (
        SELECT
            id, seq, status, lane_id, priority, eligible_at, deadline_at, parent_id, concurrency_key, rate_key
        FROM durable.instances
        WHERE id = input.id
        LIMIT 1
    ) AS instance
), unready AS (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT ready.ctid
        FROM target
        CROSS JOIN LATERAL (
            SELECT ready.ctid
            FROM durable.ready AS ready
            WHERE ready.lane_id = target.lane_id
                AND ready.priority = target.priority
                AND ready.eligible_at = target.eligible_at
                AND ready.instance_id = target.id
            LIMIT 1
        ) AS ready
        WHERE target.status = 'active'
    ))
    RETURNING instance_id
), unscheduled AS (
    DELETE FROM durable.scheduled
    WHERE ctid = ANY (ARRAY(
        SELECT scheduled.ctid
        FROM target
        CROSS JOIN LATERAL (
            SELECT scheduled.ctid
            FROM durable.scheduled AS scheduled
            WHERE scheduled.lane_id = target.lane_id
                AND scheduled.eligible_at = target.eligible_at
                AND scheduled.instance_id = target.id
            LIMIT 1
        ) AS scheduled
        WHERE target.status = 'active'
    ))
    RETURNING instance_id
), own AS MATERIALIZED (
    -- Their keys, locked as everywhere: after the instances, in order.
    SELECT wanted.*
    FROM (
        SELECT 'concurrency'::durable.limit_key_kind AS kind, concurrency_key AS key, target.*
        FROM target
        WHERE status = 'active' AND concurrency_key IS NOT NULL
        UNION ALL
        SELECT 'rate', rate_key, target.*
        FROM target
        WHERE status = 'active' AND rate_key IS NOT NULL
        ORDER BY kind, key
    ) AS wanted
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.limit_keys
        WHERE kind = wanted.kind AND key = wanted.key AND waiting > 0
        FOR NO KEY UPDATE
    ) AS limit_key
), unwaiting AS (
    DELETE FROM durable.waiting
    WHERE ctid = ANY (ARRAY(
        SELECT waiting.ctid
        FROM own
        CROSS JOIN LATERAL (
            SELECT waiting.ctid
            FROM durable.waiting AS waiting
            WHERE waiting.kind = own.kind
                AND waiting.key = own.key
                AND waiting.priority = own.priority
                AND waiting.eligible_at = own.eligible_at
                AND waiting.instance_id = own.id
            LIMIT 1
        ) AS waiting
    ))
    RETURNING kind, key, instance_id
), counted AS (
    UPDATE durable.limit_keys AS limit_key
    SET waiting = limit_key.waiting - gone.instances,
        look_at = CASE WHEN limit_key.waiting > gone.instances THEN limit_key.look_at END
    FROM (SELECT kind, key, count(*)::integer AS instances FROM unwaiting GROUP BY kind, key) AS gone
    WHERE limit_key.kind = gone.kind AND limit_key.key BETWEEN gone.key AND gone.key
), met AS (
    DELETE FROM durable.deadlines
    WHERE ctid = ANY (ARRAY(
        SELECT deadline.ctid
        FROM target
        CROSS JOIN LATERAL (
            SELECT deadline.ctid
            FROM durable.deadlines AS deadline
            WHERE deadline.deadline_at = target.deadline_at AND deadline.instance_id = target.id
            LIMIT 1
        ) AS deadline
        WHERE target.status IN ('awaiting_signal', 'awaiting_children')
    ))
), stands AS MATERIALIZED (
    SELECT
        target.id, target.seq, target.parent_id,
        CASE
            WHEN target.status <> 'active' THEN target.status::text
            WHEN target.id IN (
                SELECT instance_id FROM unready
                UNION ALL
                SELECT instance_id FROM unscheduled
                UNION ALL
                SELECT instance_id FROM unwaiting
            ) THEN 'runnable'
            ELSE 'executing'
        END AS status
    FROM target
), marked AS (
    UPDATE durable.instances AS instance
    SET cancellation = coalesce(instance.cancellation, $2::jsonb)
    WHERE instance.id = ANY (ARRAY(SELECT id FROM stands WHERE status = 'executing'))
    RETURNING instance.id
), told AS (
    INSERT INTO durable.cancel_requests (instance_id)
    SELECT id
    FROM marked
    ORDER BY id
    ON CONFLICT DO NOTHING
)
SELECT id, seq, parent_id, status
FROM stands
