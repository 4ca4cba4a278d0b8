-- Looks at what no claim shows: whether any live worker reaps and collects, and which machines of the queues $1
-- have instances ready and are none of $2 with version $3 (rules FSM-5, OPS-1). At least one row; without such
-- a machine it carries only the first two answers. Asked once a minute by each engine.
-- Index: the primary key of ready, one probe per lane; lanes and workers are small, and read whole.
SELECT
    EXISTS (
        SELECT FROM durable.workers WHERE dead_at IS NULL AND lease_until > clock_timestamp() AND reaper
    ) AS reaper,
    EXISTS (
        SELECT FROM durable.workers WHERE dead_at IS NULL AND lease_until > clock_timestamp() AND collector
    ) AS collector,
    unknown.*
FROM (SELECT) AS common
LEFT JOIN (
    SELECT lane.queue, lane.machine, lane.machine_version
    FROM durable.lanes AS lane
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.ready
        WHERE lane_id IN (lane.id, -lane.id)
        LIMIT 1
    ) AS ready
    WHERE lane.queue = ANY ($1::text[])
        AND (lane.machine, lane.machine_version) NOT IN (SELECT * FROM unnest($2::text[], $3::integer[]))
) AS unknown ON true
ORDER BY unknown.queue, unknown.machine, unknown.machine_version
