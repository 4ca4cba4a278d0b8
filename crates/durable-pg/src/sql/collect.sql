-- Removes terminal instances older than the retention of their status ($1 done, $2 failed, $3 cancelled, in
-- microseconds), the oldest first, at most about $4 of each, and says whether more are due (rule OPS-3).
--
-- An instance is removed only if it still has the status of the list that names it, and is old enough: one
-- that was restarted meanwhile is on a later list, or on none. One that a caller's transaction holds stays
-- on its list. Two collectors skip each other's lists.
--
-- A child whose parent is not terminal goes to the kept children of its parent, where it costs nothing and holds up
-- nobody, and comes back when the parent is removed (rule CHILD-4). The parent is locked for that, against its end: so
-- whoever sees it terminal also sees its kept children. One whose parent is locked stays on its list.
--
-- Index: finished_status_finished_at, up to the age; the primary keys of finished and instances, one probe per
-- list, instance and parent; that of kept_children, one probe per removed instance that has had children.
WITH retention AS MATERIALIZED (
    SELECT
        input.status,
        statement_timestamp() - input.kept_us * interval '1 microsecond' AS until
    FROM (VALUES
        ('done'::durable.status, $1::bigint),
        ('failed'::durable.status, $2::bigint),
        ('cancelled'::durable.status, $3::bigint)
    ) AS input (status, kept_us)
), due AS MATERIALIZED (
    SELECT oldest.id, oldest.finished_at, retention.status, retention.until,
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
    SELECT due.id, due.finished_at, due.status, due.until, finished.instance_ids
    FROM (SELECT * FROM due WHERE instances_before < $4::bigint ORDER BY id) AS due
    CROSS JOIN LATERAL (
        SELECT instance_ids
        FROM durable.finished
        WHERE id = due.id
        FOR UPDATE SKIP LOCKED
    ) AS finished
), listed AS MATERIALIZED (
    SELECT
        list.id AS list_id, list.finished_at, list.status, list.until,
        entry.id, instance.parent_id, parent.id IS NOT NULL AS read_by_parent
    FROM list
    CROSS JOIN LATERAL unnest(list.instance_ids) AS entry (id)
    CROSS JOIN LATERAL (
        SELECT instance.parent_id
        FROM durable.instances AS instance
        WHERE instance.id = entry.id
            AND instance.status = list.status
            AND instance.finished_at <= list.until
        LIMIT 1
    ) AS instance
    LEFT JOIN LATERAL (
        SELECT parent.id
        FROM durable.instances AS parent
        WHERE parent.id = instance.parent_id AND parent.status NOT IN ('done', 'failed', 'cancelled')
        LIMIT 1
    ) AS parent ON instance.parent_id IS NOT NULL
    ORDER BY entry.id
), reader AS MATERIALIZED (
    SELECT input.id
    FROM (SELECT DISTINCT parent_id AS id FROM listed WHERE read_by_parent ORDER BY parent_id) AS input
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS parent
        WHERE parent.id = input.id AND parent.status NOT IN ('done', 'failed', 'cancelled')
        FOR SHARE SKIP LOCKED
    ) AS parent
), owned AS MATERIALIZED (
    SELECT listed.id
    FROM listed
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = listed.id
            AND instance.status = listed.status
            AND instance.finished_at <= listed.until
            AND NOT listed.read_by_parent
        FOR UPDATE SKIP LOCKED
    ) AS instance
), removed AS (
    DELETE FROM durable.instances
    WHERE id = ANY (ARRAY(SELECT id FROM owned))
    RETURNING id, fan_out
), kept AS (
    INSERT INTO durable.kept_children (parent_id, finished_at, status, instance_ids)
    SELECT parent_id, finished_at, status, array_agg(id)
    FROM listed
    WHERE read_by_parent AND (parent_id IN (SELECT id FROM reader)) IS TRUE
    GROUP BY list_id, parent_id, finished_at, status
), freed AS (
    DELETE FROM durable.kept_children
    WHERE ctid = ANY (ARRAY(
        SELECT child.ctid
        FROM removed
        CROSS JOIN LATERAL (
            SELECT child.ctid
            FROM durable.kept_children AS child
            WHERE child.parent_id = removed.id
            OFFSET 0
        ) AS child
        WHERE removed.fan_out IS NOT NULL
    ))
    RETURNING finished_at, status, instance_ids
), listed_again AS (
    INSERT INTO durable.finished (finished_at, status, instances, instance_ids)
    SELECT finished_at, status, cardinality(instance_ids), instance_ids
    FROM freed
), behind AS MATERIALIZED (
    SELECT list_id, array_agg(id) AS instance_ids
    FROM listed
    WHERE CASE
        WHEN read_by_parent THEN (parent_id NOT IN (SELECT id FROM reader)) IS TRUE
        ELSE (id NOT IN (SELECT id FROM owned)) IS TRUE
    END
    GROUP BY list_id
), shrunk AS (
    UPDATE durable.finished
    SET (instance_ids, instances) = (
        SELECT behind.instance_ids, cardinality(behind.instance_ids)
        FROM behind
        WHERE behind.list_id = finished.id
    )
    WHERE id = ANY (ARRAY(SELECT list_id FROM behind))
), deleted AS (
    DELETE FROM durable.finished
    WHERE id = ANY (ARRAY(SELECT id FROM list EXCEPT SELECT list_id FROM behind))
)
SELECT
    (SELECT count(*) FROM removed) AS removed,
    (EXISTS (SELECT FROM due WHERE instances_before >= $4::bigint) OR EXISTS (SELECT FROM freed))
        -- Without progress the rest is locked: nothing to do at once.
        AND (SELECT coalesce(sum(cardinality(instance_ids)), 0) FROM list)
            > (SELECT coalesce(sum(cardinality(instance_ids)), 0) FROM behind) AS more
