-- Reads the fencing numbers of these instances; one that is not there is left out.
-- Index: the primary key of instances.
SELECT input.place, instance.seq
FROM unnest($1::bigint[]) WITH ORDINALITY AS input (id, place)
CROSS JOIN LATERAL (
    SELECT seq
    FROM durable.instances
    WHERE id = input.id
    LIMIT 1
) AS instance
