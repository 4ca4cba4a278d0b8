-- How instances stand, and in which queue. Runnable and executing are told apart by the place row, which is found
-- under the instance's own lane, priority and eligible time.
-- Index: the primary keys of instances, lanes, ready and scheduled, one probe each per instance.
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
            )
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
    WHERE id = instance.lane_id
    LIMIT 1
) AS lane
