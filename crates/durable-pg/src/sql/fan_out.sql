-- Ends what commit.sql began for instances that schedule children: those of which children were inserted wait for as
-- many as are needed ($2; NULL means all), the others go on at once, eligible since their outcome (rule CHILD-1). Runs in
-- the same transaction, after the insert of the children, so nobody sees the state in between, and the lock of each
-- instance is held.
-- Index: the primary key of instances, one probe per instance.
WITH input AS MATERIALIZED (
    SELECT input.id, least(coalesce(input.needed, input.inserted), input.inserted) AS children_left
    FROM unnest($1::bigint[], $2::integer[], $3::integer[]) AS input (id, needed, inserted)
), written AS (
    UPDATE durable.instances AS instance
    SET children_left = input.children_left,
        status = CASE WHEN input.children_left > 0 THEN instance.status ELSE 'active' END,
        correlation_guard = CASE
            WHEN input.children_left > 0 AND 'awaiting_children' <> ALL (instance.correlation_scope) THEN NULL
            ELSE instance.correlation_guard
        END
    FROM input
    WHERE instance.id BETWEEN input.id AND input.id
    RETURNING
        instance.id, instance.seq, instance.lane_id, instance.priority, instance.eligible_at, instance.status,
        instance.deadline_at,
        CASE
            WHEN instance.correlation_guard IS NOT NULL AND 'executing' <> ALL (instance.correlation_scope) THEN true
        END AS releases_key
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
    WHERE status = 'active'
)
INSERT INTO durable.deadlines (deadline_at, instance_id, seq)
SELECT deadline_at, id, seq
FROM written
WHERE status = 'awaiting_children' AND deadline_at IS NOT NULL
