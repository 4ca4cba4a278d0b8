-- Runs failed and cancelled instances again from their last step (rule CANCEL-3). Their locks are held, and this snapshot
-- came after them. A correlation key is taken again: where another instance holds it, its id is the answer and
-- nothing is changed; a holder that this snapshot does not show fails the unique index. That the child was counted
-- towards its parent's join stays on record, so it is not counted twice.
-- Index: the primary key of instances and instances_correlation_guard, one probe per instance.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), target AS MATERIALIZED (
    SELECT instance.id, holder.id AS holder
    FROM unnest($1::bigint[]) AS input (id)
    CROSS JOIN LATERAL (
        SELECT id, correlation_key
        FROM durable.instances
        WHERE id = input.id AND status IN ('failed', 'cancelled')
        LIMIT 1
    ) AS instance
    LEFT JOIN LATERAL (
        SELECT id
        FROM durable.instances
        WHERE correlation_guard = instance.correlation_key AND id <> instance.id
        LIMIT 1
    ) AS holder ON instance.correlation_key IS NOT NULL
), written AS (
    UPDATE durable.instances AS instance
    SET seq = instance.seq + 1,
        status = 'active',
        attempt = 0,
        crashes = 0,
        eligible_at = (SELECT now FROM clock),
        finished_at = NULL,
        correlation_guard = instance.correlation_key
    WHERE instance.id = ANY (ARRAY(SELECT id FROM target WHERE holder IS NULL))
    RETURNING
        instance.id, instance.seq, instance.lane_id, instance.priority, instance.eligible_at,
        CASE
            WHEN instance.correlation_guard IS NOT NULL AND 'executing' <> ALL (instance.correlation_scope) THEN true
        END AS releases_key
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
)
SELECT id, holder FROM target
