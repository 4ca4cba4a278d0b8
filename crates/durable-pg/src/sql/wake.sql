-- Wakes parked instances: those with a deadline only, as if it had fired, where $2 says so (rules CANCEL-3, SIG-4). Their
-- locks are held, and this snapshot came after them. One row for each instance that is there: how it stands, and
-- whether it was woken.
-- Index: the primary keys of instances, ready, scheduled and deadlines, one probe each per instance.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), written AS (
    UPDATE durable.instances AS instance
    SET seq = instance.seq + 1,
        status = 'active',
        eligible_at = (SELECT now FROM clock),
        deadline_fired = CASE WHEN $2::boolean THEN true END
    WHERE instance.id = ANY ($1::bigint[])
        AND instance.status IN ('awaiting_signal', 'awaiting_children')
        AND (NOT $2::boolean OR instance.deadline_at IS NOT NULL)
    RETURNING
        instance.id, instance.seq, instance.lane_id, instance.priority, instance.eligible_at,
        instance.deadline_at,
        CASE
            WHEN instance.correlation_guard IS NOT NULL AND 'executing' <> ALL (instance.correlation_scope) THEN true
        END AS releases_key
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
), met AS (
    DELETE FROM durable.deadlines
    WHERE ctid = ANY (ARRAY(
        SELECT deadline.ctid
        FROM written
        CROSS JOIN LATERAL (
            SELECT deadline.ctid
            FROM durable.deadlines AS deadline
            WHERE deadline.deadline_at = written.deadline_at AND deadline.instance_id = written.id
            LIMIT 1
        ) AS deadline
    ))
)
SELECT id FROM written
