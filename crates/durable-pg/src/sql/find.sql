-- Finds the instance that holds a correlation key (rule ID-1).
-- Index: instances_correlation_guard.
SELECT id
FROM durable.instances
WHERE correlation_guard = $1::text
