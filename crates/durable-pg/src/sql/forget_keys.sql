-- Forgets keys that nobody holds, waits for or has paused, among $3 rows behind a mark ($1, $2), so that each round costs
-- the same whatever there is. Says how many it looked at, where it ended, and how many are gone; one that somebody has
-- locked stays.
-- Index: the primary key of limit_keys. A row is deleted as it was locked, in the same statement.
WITH seen AS MATERIALIZED (
    SELECT ctid AS row, kind, key, holder_id, waiting, paused_until
    FROM durable.limit_keys
    WHERE (kind, key) > ($1::text::durable.limit_key_kind, $2::text)
    ORDER BY kind, key
    LIMIT $3::integer
), idle AS MATERIALIZED (
    SELECT limit_key.row
    FROM (
        SELECT kind, key
        FROM seen
        WHERE holder_id IS NULL AND waiting = 0 AND coalesce(paused_until < clock_timestamp(), true)
    ) AS seen
    CROSS JOIN LATERAL (
        SELECT ctid AS row
        FROM durable.limit_keys
        WHERE kind = seen.kind
            AND key = seen.key
            AND holder_id IS NULL
            AND waiting = 0
            AND coalesce(paused_until < clock_timestamp(), true)
        FOR UPDATE SKIP LOCKED
    ) AS limit_key
), forgotten AS (
    DELETE FROM durable.limit_keys
    WHERE ctid = ANY (ARRAY(SELECT row FROM idle))
    RETURNING key
)
SELECT
    (SELECT count(*) FROM seen) AS seen,
    last.kind::text AS kind,
    last.key,
    (SELECT count(*) FROM forgotten) AS forgotten
FROM (SELECT) AS common
LEFT JOIN (SELECT kind, key FROM seen ORDER BY kind DESC, key DESC LIMIT 1) AS last ON true
