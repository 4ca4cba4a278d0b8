-- What must be true of the store whatever was interleaved; one row for each fault.
WITH place AS (
    SELECT instance_id, seq, 'ready' AS place FROM durable.ready
    UNION ALL
    SELECT instance_id, seq, 'scheduled' FROM durable.scheduled
    UNION ALL
    SELECT entry.id, entry.seq, 'claims'
    FROM durable.claims
    CROSS JOIN LATERAL unnest(instance_ids, seqs) AS entry (id, seq)
    JOIN durable.instances AS instance ON instance.id = entry.id AND instance.seq = entry.seq
    UNION ALL
    SELECT instance.id, instance.seq, 'finished'
    FROM durable.finished
    CROSS JOIN LATERAL unnest(instance_ids) AS entry (id)
    JOIN durable.instances AS instance ON instance.id = entry.id
), fault AS (
    SELECT instance.id, format('%s, but in %s places: %s', status, count(place), string_agg(place, ' ')) AS what
    FROM durable.instances AS instance
    LEFT JOIN place ON place.instance_id = instance.id
    GROUP BY instance.id
    HAVING count(place) <> CASE WHEN status IN ('awaiting_signal', 'awaiting_children') THEN 0 ELSE 1 END
        OR bool_or((place = 'finished') <> (status IN ('done', 'failed', 'cancelled')))
    UNION ALL
    SELECT instance.id, format('in %s under another fencing number', place)
    FROM durable.instances AS instance
    JOIN place ON place.instance_id = instance.id
    WHERE place.seq <> instance.seq
    UNION ALL
    SELECT instance.id, 'parked with a signal that it waits for: a lost wake'
    FROM durable.instances AS instance
    JOIN durable.signals AS signal ON signal.instance_id = instance.id
    WHERE instance.status = 'awaiting_signal' AND signal.name = ANY (instance.awaited)
    UNION ALL
    SELECT instance.id, 'parked with a deadline that nothing will fire'
    FROM durable.instances AS instance
    LEFT JOIN durable.deadlines AS deadline
        ON deadline.instance_id = instance.id
        AND deadline.seq = instance.seq
        AND deadline.deadline_at = instance.deadline_at
    WHERE instance.status IN ('awaiting_signal', 'awaiting_children')
        AND instance.deadline_at IS NOT NULL
        AND deadline.instance_id IS NULL
    UNION ALL
    SELECT instance.id, format('waits for %s children of which %s are not terminal', instance.children_left, count(child.id))
    FROM durable.instances AS instance
    LEFT JOIN durable.instances AS child
        ON child.parent_id = instance.id
        AND child.parent_fan_out = instance.fan_out
        AND child.status NOT IN ('done', 'failed', 'cancelled')
    WHERE instance.status = 'awaiting_children'
    GROUP BY instance.id
    HAVING instance.children_left <> count(child.id)
    UNION ALL
    SELECT instance.id, 'terminal, with something left in its inbox'
    FROM durable.instances AS instance
    WHERE instance.status IN ('done', 'failed', 'cancelled')
        AND (
            EXISTS (SELECT FROM durable.signals AS signal WHERE signal.instance_id = instance.id)
            OR EXISTS (SELECT FROM durable.signal_keys AS known WHERE known.instance_id = instance.id)
        )
    UNION ALL
    SELECT request.instance_id, 'asked to be cancelled, but does not execute'
    FROM durable.cancel_requests AS request
    LEFT JOIN durable.instances AS instance
        ON instance.id = request.instance_id AND instance.status = 'active' AND instance.cancellation IS NOT NULL
    WHERE instance.id IS NULL
)
SELECT format('instance %s: %s', id, what) FROM fault ORDER BY 1
