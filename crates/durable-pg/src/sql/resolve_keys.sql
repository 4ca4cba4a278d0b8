-- Finds who holds each of these correlation keys, in the caller's order; NULL where nobody does.
-- Index: instances_correlation_guard, one probe per key.
SELECT instance.id
FROM unnest($1::text[]) WITH ORDINALITY AS input (key, place)
LEFT JOIN LATERAL (
    SELECT id
    FROM durable.instances
    WHERE correlation_guard = input.key
    LIMIT 1
) AS instance ON true
ORDER BY input.place
