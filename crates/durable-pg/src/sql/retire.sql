-- Removes a worker that holds no claim. A claim in progress is either seen here, or makes the foreign key
-- refuse this statement: in both cases the worker stays.
-- Index: the primary keys of workers and claims.
DELETE FROM durable.workers
WHERE id = $1::bigint
    AND ARRAY(SELECT number FROM durable.claims WHERE worker_id = $1::bigint LIMIT 1) = '{}'
