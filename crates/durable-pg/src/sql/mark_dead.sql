-- Declares workers dead whose lease has ended, under the lock of their rows: a heartbeat in progress makes
-- its worker skipped, a later one finds it dead (rule LEASE-4). Not within one lease after the server
-- started: while it was away, no heartbeat could arrive. Says how many it declared, and whether there are any
-- dead workers at all: mostly there are none, and this is all that a round of the reaper asks.
-- Index: the primary key of workers; the table holds one row per running engine.
WITH expired AS MATERIALIZED (
    SELECT id
    FROM durable.workers
    WHERE dead_at IS NULL
        AND lease_until < clock_timestamp()
        AND pg_postmaster_start_time() + lease < clock_timestamp()
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
), declared AS (
    UPDATE durable.workers AS worker
    SET dead_at = clock_timestamp()
    FROM expired
    WHERE worker.id = expired.id
    RETURNING worker.id
)
SELECT
    (SELECT count(*) FROM declared) AS declared,
    EXISTS (SELECT FROM declared) OR EXISTS (SELECT FROM durable.workers WHERE dead_at IS NOT NULL) AS any_dead
