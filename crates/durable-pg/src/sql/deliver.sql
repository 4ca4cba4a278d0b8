-- Delivers signals, all of them or none, in one call (rules SIG-1, SIG-2); what it does stands with the function. Waits
-- for a locked target no longer than a moment, so that no caller's transaction holds this connection for long.
-- Targets that are given by key are resolved here, and checked again under the lock.
-- Index: instances_correlation_guard, one probe per key.
WITH bounded AS MATERIALIZED (
    SELECT set_config('lock_timeout', '500ms', true) AS lock_timeout
), target AS MATERIALIZED (
    SELECT array_agg(coalesce(input.id, holder.id) ORDER BY input.place) AS ids
    FROM bounded
    CROSS JOIN unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS input (id, key, place)
    LEFT JOIN LATERAL (
        SELECT id
        FROM durable.instances
        WHERE correlation_guard = input.key
        LIMIT 1
    ) AS holder ON input.key IS NOT NULL
)
SELECT delivered.*
FROM target
CROSS JOIN LATERAL durable.deliver_signals(target.ids, $2::text[], $3::text[], $4::text[], $5::text[]) AS delivered
