WITH added AS (
    INSERT INTO floor.instances (lane_id, step, state, priority, eligible_at)
    SELECT 1, 'perform', '{"order": 1}', 100, clock_timestamp()
    FROM generate_series(1, $1::bigint)
    RETURNING id, lane_id, priority, eligible_at, seq
)
INSERT INTO floor.ready (lane_id, priority, eligible_at, instance_id, seq)
SELECT lane_id, priority, eligible_at, id, seq FROM added
