-- Finds the lanes of these queues, machines and versions, where they exist.
-- Index: the unique one of lanes. Runs once per lane and process; the answer is kept.
SELECT input.place, lane.id
FROM unnest($1::text[], $2::text[], $3::integer[]) WITH ORDINALITY
    AS input (queue, machine, machine_version, place)
CROSS JOIN LATERAL (
    SELECT id
    FROM durable.lanes
    WHERE queue = input.queue AND machine = input.machine AND machine_version = input.machine_version
    LIMIT 1
) AS lane
