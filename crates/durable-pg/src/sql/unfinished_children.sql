-- The children of these instances that are not terminal, of every fan-out.
-- Index: instances_parent, one scan per parent over all of its children.
SELECT child.id
FROM unnest($1::bigint[]) AS parent (id)
CROSS JOIN LATERAL (
    SELECT id
    FROM durable.instances
    WHERE parent_id = parent.id AND status NOT IN ('done', 'failed', 'cancelled')
    -- Without it this could become a join, and that a walk over the table.
    OFFSET 0
) AS child
ORDER BY child.id
