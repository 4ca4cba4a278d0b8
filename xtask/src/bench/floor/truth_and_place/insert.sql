-- A batch of new instances with their place rows, in one statement.
WITH added AS (
    INSERT INTO floor.instances (lane_id, step, state, priority, eligible_at)
    SELECT lane_id, step, state::jsonb, priority, clock_timestamp()
    FROM unnest($1::integer[], $2::text[], $3::text[], $4::smallint[]) AS input (lane_id, step, state, priority)
    RETURNING id, lane_id, priority, eligible_at, seq
), placed AS (
    INSERT INTO floor.ready (lane_id, priority, eligible_at, instance_id, seq)
    SELECT lane_id, priority, eligible_at, id, seq FROM added
)
SELECT id FROM added
