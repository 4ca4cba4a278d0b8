-- Extends a worker's lease from now, unless it was declared dead, and lists its open claims, and the
-- executing instances, of any worker, that must end cancelled (rules LEASE-1, CLAIM-6, CANCEL-1). No row: it is dead. One small HOT update, whatever the worker holds.
-- Index: the primary keys of workers, claims and cancel_requests, which is nearly always empty.
UPDATE durable.workers
SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond',
    lease = $2::bigint * interval '1 microsecond'
WHERE id = $1::bigint AND dead_at IS NULL
RETURNING
    ARRAY(SELECT number FROM durable.claims WHERE worker_id = $1::bigint) AS claims,
    ARRAY(SELECT instance_id FROM durable.cancel_requests ORDER BY instance_id) AS cancelled
