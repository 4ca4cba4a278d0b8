-- The lock and the update meet on ctid in one statement, so the plan is a TID scan whatever the statistics.
UPDATE floor.instances
SET status = 'executing', locked_by = $1, seq = seq + 1
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM floor.instances
    WHERE queue = 'default' AND status = 'runnable' AND blocked_by IS NULL AND eligible_at <= now()
    ORDER BY priority, eligible_at
    LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED))
    AND $2::bigint IS NOT NULL
RETURNING id, seq, machine, machine_version, step, state::text, attempt
