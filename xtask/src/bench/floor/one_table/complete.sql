-- Guarded by owner and fencing number; locked in id order before the update. Written so that no partial
-- index can be chosen for the look-up by id: without statistics the planner would read every executing row.
WITH owned AS MATERIALIZED (
    SELECT instance.id
    FROM unnest($3::bigint[], $4::integer[]) AS input (id, seq)
    CROSS JOIN LATERAL (
        SELECT id FROM floor.instances AS instance
        WHERE instance.id = input.id AND instance.seq = input.seq
          AND (instance.locked_by = $1) IS TRUE AND (instance.status = 'executing') IS TRUE
        FOR NO KEY UPDATE SKIP LOCKED) AS instance
    WHERE $2::bigint IS NOT NULL
)
UPDATE floor.instances AS instance
SET status = 'done', locked_by = NULL, seq = seq + 1, finished_at = now()
FROM owned
WHERE instance.id = owned.id
RETURNING instance.id
