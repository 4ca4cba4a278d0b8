WITH picked AS (
    DELETE FROM floor.ready
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM floor.ready
        WHERE lane_id = 1
        ORDER BY priority, eligible_at, instance_id
        LIMIT $3
        FOR UPDATE SKIP LOCKED))
    RETURNING instance_id, seq, priority, eligible_at
), claim AS (
    INSERT INTO floor.claims (worker_id, number, instance_ids, seqs)
    SELECT $1, $2, array_agg(instance_id), array_agg(seq) FROM picked HAVING count(*) > 0
)
SELECT picked.instance_id, picked.seq, instance.lane_id, instance.step, instance.state::text, instance.attempt
FROM picked
CROSS JOIN LATERAL (SELECT * FROM floor.instances WHERE id = picked.instance_id) AS instance
