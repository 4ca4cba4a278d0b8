-- Makes every scheduled row of these lanes due now: for tests, which cannot wait, and for operators. The truth
-- gets the new eligible time with the place, as the place row is found under it. An instance that somebody
-- else holds is left as it is.
--
-- Locks instances in the order of their ids, then their place rows, as everywhere.
-- A row of `scheduled` is never updated, so deleting by ctid is right; no statistics lead it astray.
-- Index: the primary keys of scheduled and instances.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), place AS MATERIALIZED (
    SELECT scheduled.*
    FROM unnest($1::integer[]) AS lane (id)
    CROSS JOIN LATERAL (
        SELECT ctid AS place, eligible_at, instance_id
        FROM durable.scheduled
        WHERE lane_id = lane.id
        ORDER BY eligible_at, instance_id
    ) AS scheduled
    ORDER BY scheduled.instance_id
), owned AS MATERIALIZED (
    SELECT place.place
    FROM place
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = place.instance_id AND instance.eligible_at = place.eligible_at
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS instance
), moved AS (
    DELETE FROM durable.scheduled
    WHERE ctid = ANY (ARRAY(SELECT place FROM owned))
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
SELECT count(*) FROM moved
