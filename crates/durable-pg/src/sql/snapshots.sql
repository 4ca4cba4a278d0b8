-- Reads instances as they stand; one that is not there is left out. Runnable and executing are told apart by
-- the place row, which is found under the instance's own lane, priority and eligible time.
-- Index: the primary keys of instances, lanes, ready and scheduled, one probe each per instance; that of signals for one
-- that has received any, that of waiting for one with limits.
SELECT
    input.place,
    lane.queue,
    lane.machine,
    lane.machine_version,
    CASE
        WHEN instance.status <> 'active' THEN instance.status::text
        WHEN coalesce(ready.seq, scheduled.seq, waiting.seq) IS NOT NULL THEN 'runnable'
        ELSE 'executing'
    END AS status,
    instance.step,
    instance.state::text AS state,
    instance.attempt,
    instance.crashes,
    instance.result::text AS result,
    instance.failure::text AS failure,
    instance.correlation_guard,
    instance.visit,
    instance.awaited,
    instance.deadline_fired,
    instance.parent_id,
    CASE WHEN instance.status = 'awaiting_children' THEN instance.children_left END AS children_left,
    instance.cancellation IS NOT NULL AS cancel_requested,
    CASE WHEN instance.signals_received IS NOT NULL THEN (
        SELECT json_agg(json_build_object('number', number, 'name', name, 'payload', payload) ORDER BY number)::text
        FROM durable.signals
        WHERE instance_id = instance.id
    ) END AS inbox,
    CASE WHEN instance.status IN ('awaiting_signal', 'awaiting_children') THEN
        (extract(epoch FROM instance.deadline_at - clock_timestamp()) * 1000000)::bigint
    END AS deadline_us,
    instance.concurrency_key,
    instance.rate_key,
    instance.weight,
    waiting.kind::text AS waits_for,
    (extract(epoch FROM instance.eligible_at - clock_timestamp()) * 1000000)::bigint AS due_us
FROM unnest($1::bigint[]) WITH ORDINALITY AS input (id, place)
CROSS JOIN LATERAL (
    SELECT *
    FROM durable.instances
    WHERE id = input.id
    LIMIT 1
) AS instance
CROSS JOIN LATERAL (
    SELECT *
    FROM durable.lanes
    WHERE id = abs(instance.lane_id)
    LIMIT 1
) AS lane
LEFT JOIN LATERAL (
    SELECT seq
    FROM durable.ready
    WHERE lane_id = instance.lane_id
        AND priority = instance.priority
        AND eligible_at = instance.eligible_at
        AND instance_id = instance.id
    LIMIT 1
) AS ready ON true
LEFT JOIN LATERAL (
    SELECT seq
    FROM durable.scheduled
    WHERE lane_id = instance.lane_id
        AND eligible_at = instance.eligible_at
        AND instance_id = instance.id
    LIMIT 1
) AS scheduled ON true
LEFT JOIN LATERAL (
    SELECT waiting.seq, waiting.kind
    FROM (
        VALUES ('concurrency'::durable.limit_key_kind, instance.concurrency_key), ('rate', instance.rate_key)
    ) AS own (kind, key)
    CROSS JOIN LATERAL (
        SELECT seq, kind
        FROM durable.waiting
        WHERE kind = own.kind
            AND key = own.key
            AND priority = instance.priority
            AND eligible_at = instance.eligible_at
            AND instance_id = instance.id
        LIMIT 1
    ) AS waiting
    LIMIT 1
) AS waiting ON instance.lane_id < 0
