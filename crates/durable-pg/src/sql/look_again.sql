-- Has the keys of a limit looked at now, where instances wait, because it allows something else ($1 is the kind of the
-- keys, $2 the name of the limit). Keys are locked in order. Whom another transaction holds is waited for.
-- Reads all keys of the kind, by the primary key of limit_keys: limits seldom change.
WITH found AS MATERIALIZED (
    SELECT limit_key.kind, limit_key.key
    FROM durable.limit_keys AS limit_key
    WHERE limit_key.kind = $1::text::durable.limit_key_kind
        AND split_part(limit_key.key, ':', 1) = $2::text
        AND limit_key.waiting > 0
    ORDER BY limit_key.kind, limit_key.key
    FOR NO KEY UPDATE
)
UPDATE durable.limit_keys AS limit_key
SET look_at = clock_timestamp()
FROM found
WHERE limit_key.kind = found.kind AND limit_key.key BETWEEN found.key AND found.key
