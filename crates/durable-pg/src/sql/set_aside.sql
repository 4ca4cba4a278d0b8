-- Gives instances that were blocked their place in `waiting`, behind the key that has no room (rule LIM-7). Runs in the
-- transaction of the commit that took them out of their claims, so nobody sees the state in between, and the lock of
-- each is held. $2 says which of its limits it was, $3 when somebody looks whether there is room.
--
-- The rows of the keys are locked in their order, as everywhere; those that the commit has freed are concurrency keys, and
-- come before all others. Who brings instances back does so under the same lock, so nobody is overlooked.
-- Index: the primary keys of instances and limit_keys, one probe per instance and key.
WITH instance AS MATERIALIZED (
    SELECT
        instance.*,
        CASE input.kind WHEN 'rate' THEN 'rate' ELSE 'concurrency' END::durable.limit_key_kind AS kind,
        CASE input.kind WHEN 'rate' THEN instance.rate_key ELSE instance.concurrency_key END AS key,
        clock_timestamp() + input.look_us * interval '1 microsecond' AS look_at
    FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS input (id, kind, look_us)
    CROSS JOIN LATERAL (
        SELECT
            id, seq, lane_id, priority, eligible_at, concurrency_key, rate_key, weight,
            CASE
                WHEN correlation_guard IS NOT NULL AND 'executing' <> ALL (correlation_scope) THEN true
            END AS releases_key
        FROM durable.instances
        WHERE id = input.id
        LIMIT 1
    ) AS instance
), counted AS (
    INSERT INTO durable.limit_keys AS limit_key (kind, key, waiting, look_at)
    SELECT kind, key, count(*), min(look_at)
    FROM instance
    GROUP BY kind, key
    ORDER BY kind, key
    ON CONFLICT (kind, key) DO UPDATE
    SET waiting = limit_key.waiting + excluded.waiting,
        look_at = least(limit_key.look_at, excluded.look_at)
)
INSERT INTO durable.waiting (kind, key, priority, eligible_at, instance_id, lane_id, seq, weight, releases_key)
SELECT
    kind, key, priority, eligible_at, id, lane_id, seq,
    CASE kind WHEN 'rate' THEN coalesce(weight, 1) ELSE 1 END,
    releases_key
FROM instance
