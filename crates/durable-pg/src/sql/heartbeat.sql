-- Extends a worker's lease from now, unless it was declared dead, and lists its open claims (rules LEASE-1,
-- CLAIM-6). No row: it is dead. One small HOT update, whatever the worker holds.
-- Index: the primary keys of workers and claims.
UPDATE durable.workers
SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond',
    lease = $2::bigint * interval '1 microsecond'
WHERE id = $1::bigint AND dead_at IS NULL
RETURNING ARRAY(SELECT number FROM durable.claims WHERE worker_id = $1::bigint) AS claims
