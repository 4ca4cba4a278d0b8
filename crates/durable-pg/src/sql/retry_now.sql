-- Makes instances that wait for their time due now (rule CANCEL-3). Their locks are held, and this snapshot came after
-- them. The truth gets the new eligible time with the place, as the place row is found under it. Says which.
-- A row of `scheduled` is never updated, so deleting by ctid is right.
-- Index: the primary keys of instances and scheduled, one probe each per instance.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), moved AS (
    DELETE FROM durable.scheduled
    WHERE ctid = ANY (ARRAY(
        SELECT scheduled.ctid
        FROM unnest($1::bigint[]) AS input (id)
        CROSS JOIN LATERAL (
            SELECT id, lane_id, eligible_at
            FROM durable.instances
            WHERE id = input.id AND status = 'active'
            LIMIT 1
        ) AS instance
        CROSS JOIN LATERAL (
            SELECT scheduled.ctid
            FROM durable.scheduled AS scheduled
            WHERE scheduled.lane_id = instance.lane_id
                AND scheduled.eligible_at = instance.eligible_at
                AND scheduled.instance_id = instance.id
            LIMIT 1
        ) AS scheduled
    ))
    RETURNING lane_id, priority, instance_id, seq, releases_key
), written AS (
    UPDATE durable.instances
    SET eligible_at = (SELECT now FROM clock)
    WHERE id = ANY (ARRAY(SELECT instance_id FROM moved))
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT moved.lane_id, moved.priority, clock.now, moved.instance_id, moved.seq, moved.releases_key
    FROM clock
    CROSS JOIN moved
)
SELECT instance_id AS id FROM moved
