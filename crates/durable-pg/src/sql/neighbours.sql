-- Lists the live workers that ran in the same process table (rule LEASE-3). The table holds one row per
-- running engine, so all are read.
SELECT id, process::text AS process
FROM durable.workers
WHERE dead_at IS NULL
    AND process ->> 'boot' = $1::text
    AND process ->> 'namespace' = $2::text
ORDER BY id
