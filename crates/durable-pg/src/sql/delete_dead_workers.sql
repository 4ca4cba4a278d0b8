-- Forgets dead workers that hold no claim any more. A claim that was in progress when its worker was declared
-- dead is either seen here, or makes the foreign key refuse this statement; the next round tries again.
-- Index: the primary keys of workers and claims.
WITH empty AS MATERIALIZED (
    SELECT worker.id
    FROM durable.workers AS worker
    LEFT JOIN LATERAL (
        SELECT number
        FROM durable.claims
        WHERE worker_id = worker.id
        LIMIT 1
    ) AS claim ON true
    WHERE worker.dead_at IS NOT NULL AND claim.number IS NULL
    ORDER BY worker.id
    FOR UPDATE OF worker SKIP LOCKED
)
DELETE FROM durable.workers
WHERE id = ANY (ARRAY(SELECT id FROM empty))
