-- Sends signals in the caller's transaction: they reach the inboxes when it commits (rules INS-2, OUT-6). Says of each
-- whether there is a target. Runs on a caller's connection; the functions bring the settings of the planner with them.
-- Index: the primary key of instances and instances_correlation_guard, one probe per signal.
SELECT
    CASE
        WHEN input.id IS NULL
            THEN durable.send_signal_to_key(input.key, input.name, input.payload::jsonb, input.deduplication_key)
        ELSE durable.send_signal(input.id, input.name, input.payload::jsonb, input.deduplication_key)
    END AS accepted
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
    AS input (id, key, name, payload, deduplication_key, place)
ORDER BY input.place
