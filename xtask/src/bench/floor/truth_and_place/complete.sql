-- The claim must still exist (locked against the reaper first), and the fencing number must match.
WITH claim AS MATERIALIZED (
    SELECT number FROM floor.claims WHERE worker_id = $1 AND number = $2 FOR KEY SHARE
), owned AS MATERIALIZED (
    SELECT instance.id
    FROM claim, unnest($3::bigint[], $4::integer[]) AS input (id, seq)
    CROSS JOIN LATERAL (
        SELECT id FROM floor.instances AS instance
        WHERE instance.id = input.id AND instance.seq = input.seq
        FOR NO KEY UPDATE SKIP LOCKED) AS instance
), written AS (
    UPDATE floor.instances AS instance
    SET status = 'done', seq = seq + 1, finished_at = now()
    FROM owned
    WHERE instance.id = owned.id
    RETURNING instance.id
), finished AS (
    INSERT INTO floor.finished (finished_at, instance_ids) SELECT now(), array_agg(id) FROM written
), closed AS (
    DELETE FROM floor.claims WHERE worker_id = $1 AND number = ANY ($5::bigint[])
)
SELECT id FROM written
