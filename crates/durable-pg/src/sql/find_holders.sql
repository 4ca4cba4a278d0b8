-- Finds who holds each of these keys, for entries of an insert that lost a race: a new snapshot sees the
-- winner, or that it is gone again.
-- Index: instances_correlation_guard, once per key.
SELECT input.place, holder.id
FROM unnest($1::text[]) WITH ORDINALITY AS input (correlation_key, place)
CROSS JOIN LATERAL (
    SELECT instance.id
    FROM durable.instances AS instance
    WHERE instance.correlation_guard = input.correlation_key
    LIMIT 1
) AS holder
