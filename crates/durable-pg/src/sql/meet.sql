-- Writes the row of one member, and reads those of the others (rule POKE-2). Members that were silent for $6 microseconds are not told
-- of, and removed: rows that another session locks are left to it, so that two meetings never wait for each other. One
-- that is removed while it writes its row waits for that, and inserts it again. At least one row comes back, for the
-- clock and the secrets.
-- Index: the primary key of members for the own row; the tables hold one row per process and few secrets, and are read
-- whole.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), announced AS (
    INSERT INTO durable.members AS member (id, version, seen_at, deadlines, address, queues)
    SELECT $1::bigint, $2::bigint, clock.now, $3::boolean, $4::text, $5::text[]
    FROM clock
    ON CONFLICT (id) DO UPDATE
    SET version = excluded.version, seen_at = excluded.seen_at, deadlines = excluded.deadlines,
        address = excluded.address, queues = excluded.queues
), gone AS (
    DELETE FROM durable.members
    WHERE id = ANY (ARRAY(
        SELECT member.id
        FROM durable.members AS member
        WHERE member.id <> $1::bigint
            AND member.seen_at < (SELECT now FROM clock) - $6::bigint * interval '1 microsecond'
        ORDER BY member.id
        FOR UPDATE SKIP LOCKED
    ))
)
SELECT
    (extract(epoch FROM clock.now) * 1000000)::bigint AS clock,
    secrets.*,
    other.id, other.version, other.deadlines, other.address, other.queues
FROM clock
CROSS JOIN LATERAL (
    SELECT
        array_agg(secret.number ORDER BY secret.number) AS secret_numbers,
        array_agg(secret.secret ORDER BY secret.number) AS secrets,
        array_agg(
            (extract(epoch FROM clock.now - secret.made_at) * 1000000)::bigint ORDER BY secret.number
        ) AS secret_ages
    FROM durable.member_secrets AS secret
) AS secrets
LEFT JOIN durable.members AS other
    ON other.id <> $1::bigint AND other.seen_at >= clock.now - $6::bigint * interval '1 microsecond'
ORDER BY other.id
