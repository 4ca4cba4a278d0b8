-- How keys stand; one without a row is left out.
-- Index: the primary key of limit_keys, one probe per key.
SELECT input.place, limit_key.*
FROM unnest($1::text[]::durable.limit_key_kind[], $2::text[]) WITH ORDINALITY AS input (kind, key, place)
CROSS JOIN LATERAL (
    SELECT
        holder_id,
        waiting,
        (extract(epoch FROM greatest(paused_until - clock_timestamp(), interval '0')) * 1000000)::bigint AS paused_us
    FROM durable.limit_keys
    WHERE kind = input.kind AND key = input.key
    LIMIT 1
) AS limit_key
