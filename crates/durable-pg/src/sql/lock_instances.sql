-- Locks instances, and their parents where $2 says so, in the order of their ids, as every statement that locks several:
-- waits for whoever holds them. The statement after it has a snapshot that sees what they did.
-- Index: the primary key of instances, one probe per instance and parent.
SELECT
FROM (
    SELECT id
    FROM unnest($1::bigint[]) AS input (id)
    UNION
    SELECT parent_id
    FROM unnest($1::bigint[]) AS input (id)
    CROSS JOIN LATERAL (
        SELECT parent_id
        FROM durable.instances
        WHERE id = input.id
        LIMIT 1
    ) AS instance
    WHERE $2::boolean AND parent_id IS NOT NULL
    ORDER BY 1
) AS input
CROSS JOIN LATERAL (
    SELECT
    FROM durable.instances
    WHERE id = input.id
    FOR NO KEY UPDATE
) AS instance
