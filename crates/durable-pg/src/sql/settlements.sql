-- As much of instances as somebody needs who waits for them; one that is not there is left out (rule WAIT-2).
-- Index: the primary key of instances, one probe per instance.
SELECT input.place, instance.*
FROM unnest($1::bigint[]) WITH ORDINALITY AS input (id, place)
CROSS JOIN LATERAL (
    SELECT
        status::text AS status,
        CASE WHEN status IN ('done', 'failed', 'cancelled') THEN result::text END AS result,
        CASE WHEN status IN ('done', 'failed', 'cancelled') THEN failure::text END AS failure
    FROM durable.instances
    WHERE id = input.id
    LIMIT 1
) AS instance
