-- Declares workers dead, whatever their lease says (rule LEASE-3). Locked in the order of their ids, so that
-- two nodes cannot deadlock.
-- Index: the primary key of workers.
WITH worker AS MATERIALIZED (
    SELECT id
    FROM durable.workers
    WHERE id = ANY ($1::bigint[]) AND dead_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE durable.workers
SET dead_at = clock_timestamp()
WHERE id = ANY (ARRAY(SELECT id FROM worker))
