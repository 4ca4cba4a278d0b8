-- Finds at most $1 keys that it is time to look at, the longest overdue first, and puts off the next look at each, so that
-- one node looks at it; should that node die, another one looks then (rule LIM-7). Says when the next key is due, and
-- the version of the limits; at least one row.
-- Index: limit_keys_look_at. A key that somebody holds is not waited for.
WITH due AS MATERIALIZED (
    SELECT ctid AS row
    FROM durable.limit_keys
    WHERE look_at <= statement_timestamp()
    ORDER BY look_at
    LIMIT $1::integer
    FOR NO KEY UPDATE SKIP LOCKED
), looked AS (
    UPDATE durable.limit_keys
    SET look_at = clock_timestamp() + interval '1 second'
    WHERE ctid = ANY (ARRAY(SELECT row FROM due))
    RETURNING kind, key
)
SELECT common.next_us, common.version, looked.kind::text AS kind, looked.key
FROM (
    SELECT
        (
            SELECT (extract(epoch FROM next.look_at - clock_timestamp()) * 1000000)::bigint
            FROM (
                SELECT look_at
                FROM durable.limit_keys
                WHERE look_at > statement_timestamp()
                ORDER BY look_at
                LIMIT 1
            ) AS next
        ) AS next_us,
        (SELECT coalesce(max(version), 0) FROM durable.limits) AS version
) AS common
LEFT JOIN looked ON true
