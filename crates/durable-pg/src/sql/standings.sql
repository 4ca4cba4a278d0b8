-- How instances stand, and in which queue. Runnable and executing are told apart by the place row, which is found
-- under the instance's own lane, priority and eligible time.
-- Index: the primary keys of instances, lanes, ready and scheduled, one probe each per instance; that of waiting
-- for one with limits.
SELECT
    instance.id,
    lane.queue,
    CASE
        WHEN instance.status <> 'active' THEN instance.status::text
        WHEN coalesce(
            (
                SELECT true
                FROM durable.ready
                WHERE lane_id = instance.lane_id
                    AND priority = instance.priority
                    AND eligible_at = instance.eligible_at
                    AND instance_id = instance.id
                LIMIT 1
            ),
            (
                SELECT true
                FROM durable.scheduled
                WHERE lane_id = instance.lane_id
                    AND eligible_at = instance.eligible_at
                    AND instance_id = instance.id
                LIMIT 1
            ),
            CASE WHEN instance.lane_id < 0 THEN (
                SELECT true
                FROM (
                    VALUES ('concurrency'::durable.limit_key_kind, instance.concurrency_key), ('rate', instance.rate_key)
                ) AS own (kind, key)
                CROSS JOIN LATERAL (
                    SELECT
                    FROM durable.waiting
                    WHERE kind = own.kind
                        AND key = own.key
                        AND priority = instance.priority
                        AND eligible_at = instance.eligible_at
                        AND instance_id = instance.id
                    LIMIT 1
                ) AS waiting
                LIMIT 1
            ) END
        ) THEN 'runnable'
        ELSE 'executing'
    END AS status
FROM unnest($1::bigint[]) AS input (id)
CROSS JOIN LATERAL (
    SELECT *
    FROM durable.instances
    WHERE id = input.id
    LIMIT 1
) AS instance
CROSS JOIN LATERAL (
    SELECT queue
    FROM durable.lanes
    WHERE id = abs(instance.lane_id)
    LIMIT 1
) AS lane
