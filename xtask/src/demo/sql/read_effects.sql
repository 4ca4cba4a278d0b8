-- Reads the whole ledger in the order in which it was written; times in microseconds since 1970.
SELECT
    id,
    (extract(epoch FROM written_at) * 1000000)::bigint AS written_at,
    instance_id,
    position,
    attempt,
    crashes,
    failed,
    step,
    worker
FROM effects
ORDER BY id
