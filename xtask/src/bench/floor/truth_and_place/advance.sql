-- One step of a chain through the queue: the instance is written once, and is ready again. After the fifth
-- step it is done. Same guards as `complete`.
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
    SET status = CASE WHEN seq = 4 THEN 'done' ELSE 'active' END,
        seq = seq + 1,
        state = jsonb_build_object('order', seq),
        eligible_at = now(),
        finished_at = CASE WHEN seq = 4 THEN now() END
    FROM owned
    WHERE instance.id = owned.id
    RETURNING instance.id, instance.status, instance.lane_id, instance.priority, instance.eligible_at, instance.seq
), placed AS (
    INSERT INTO floor.ready (lane_id, priority, eligible_at, instance_id, seq)
    SELECT lane_id, priority, eligible_at, id, seq FROM written WHERE status = 'active'
), finished AS (
    INSERT INTO floor.finished (finished_at, instance_ids)
    SELECT now(), array_agg(id) FROM written WHERE status = 'done' HAVING count(*) > 0
), closed AS (
    DELETE FROM floor.claims WHERE worker_id = $1 AND number = ANY ($5::bigint[])
)
SELECT id FROM written
