-- Removes terminal instances older than the retention of their status ($1 done, $2 failed, $3 cancelled, in
-- microseconds), the oldest first, at most about $4 of each, and says whether more are due (rule OPS-3).
--
-- An instance is removed only if it still has the status of the list that names it, and is old enough: one
-- that was restarted meanwhile is on a later list, or on none. One that a caller's transaction holds stays
-- on its list. A child whose parent is not terminal is kept, on a list of its own that is looked at again after a
-- sixteenth of the retention, so that it does not stand in the way of others (rule CHILD-4). Two collectors skip each other's lists.
--
-- Index: finished_status_finished_at, up to the age; the primary keys of finished and instances, one probe per
-- list, instance and parent.
WITH retention AS MATERIALIZED (
    SELECT
        input.status,
        statement_timestamp() - input.kept_us * interval '1 microsecond' AS until,
        statement_timestamp() - input.kept_us * interval '1 microsecond' * 15 / 16 AS again_at
    FROM (VALUES
        ('done'::durable.status, $1::bigint),
        ('failed'::durable.status, $2::bigint),
        ('cancelled'::durable.status, $3::bigint)
    ) AS input (status, kept_us)
), due AS MATERIALIZED (
    SELECT oldest.id, retention.status, retention.until, retention.again_at,
        sum(oldest.instances) OVER (PARTITION BY retention.status ORDER BY oldest.finished_at, oldest.id)
            - oldest.instances AS instances_before
    FROM retention
    CROSS JOIN LATERAL (
        SELECT id, finished_at, instances
        FROM durable.finished
        WHERE status = retention.status AND finished_at <= retention.until
        ORDER BY finished_at
        -- One more than can be taken, as each list names an instance at least: it tells whether any is left.
        LIMIT $4::bigint + 1
    ) AS oldest
), list AS MATERIALIZED (
    SELECT due.id, due.status, due.until, due.again_at, finished.instance_ids
    FROM (SELECT * FROM due WHERE instances_before < $4::bigint ORDER BY id) AS due
    CROSS JOIN LATERAL (
        SELECT instance_ids
        FROM durable.finished
        WHERE id = due.id
        FOR UPDATE SKIP LOCKED
    ) AS finished
), listed AS MATERIALIZED (
    SELECT list.id AS list_id, list.status, list.until, list.again_at, entry.id, parent.id IS NOT NULL AS kept
    FROM list
    CROSS JOIN LATERAL unnest(list.instance_ids) AS entry (id)
    CROSS JOIN LATERAL (
        SELECT instance.parent_id
        FROM durable.instances AS instance
        WHERE instance.id = entry.id
        LIMIT 1
    ) AS instance
    LEFT JOIN LATERAL (
        SELECT parent.id
        FROM durable.instances AS parent
        WHERE parent.id = instance.parent_id AND parent.status NOT IN ('done', 'failed', 'cancelled')
        LIMIT 1
    ) AS parent ON instance.parent_id IS NOT NULL
    ORDER BY entry.id
), owned AS MATERIALIZED (
    SELECT listed.id
    FROM listed
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = listed.id
            AND instance.status = listed.status
            AND instance.finished_at <= listed.until
            AND NOT listed.kept
        FOR UPDATE SKIP LOCKED
    ) AS instance
), removed AS (
    DELETE FROM durable.instances
    WHERE id = ANY (ARRAY(SELECT id FROM owned))
    RETURNING id
), behind AS MATERIALIZED (
    SELECT listed.list_id, array_agg(listed.id) AS instance_ids
    FROM listed
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = listed.id
            AND instance.status = listed.status
            AND instance.finished_at <= listed.until
        LIMIT 1
    ) AS instance
    WHERE (listed.id NOT IN (SELECT id FROM owned)) IS TRUE AND NOT listed.kept
    GROUP BY listed.list_id
), shrunk AS (
    UPDATE durable.finished
    SET (instance_ids, instances) = (
        SELECT behind.instance_ids, cardinality(behind.instance_ids)
        FROM behind
        WHERE behind.list_id = finished.id
    )
    WHERE id = ANY (ARRAY(SELECT list_id FROM behind))
), listed_again AS (
    INSERT INTO durable.finished (finished_at, status, instances, instance_ids)
    SELECT again_at, status, count(*), array_agg(id)
    FROM listed
    WHERE kept
    GROUP BY again_at, status
), deleted AS (
    DELETE FROM durable.finished
    WHERE id = ANY (ARRAY(SELECT id FROM list EXCEPT SELECT list_id FROM behind))
)
SELECT
    (SELECT count(*) FROM removed) AS removed,
    EXISTS (SELECT FROM due WHERE instances_before >= $4::bigint) AS more
