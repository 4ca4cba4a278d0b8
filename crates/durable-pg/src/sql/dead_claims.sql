-- Lists claims of dead workers, at most $1, with how many instances each names. Without locks: take_back
-- locks them.
-- Index: the primary keys of workers and claims.
SELECT claim.worker_id, claim.number, claim.instances
FROM (
    SELECT id
    FROM durable.workers
    WHERE dead_at IS NOT NULL
    ORDER BY id
) AS worker
CROSS JOIN LATERAL (
    SELECT worker_id, number, cardinality(instance_ids) AS instances
    FROM durable.claims
    WHERE worker_id = worker.id
    ORDER BY number
    LIMIT $1::bigint
) AS claim
LIMIT $1::bigint
