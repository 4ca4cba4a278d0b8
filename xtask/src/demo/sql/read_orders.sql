-- Reads every order, and none of its line items, as the store has it; times in microseconds since 1970. The state, or the result once
-- there is one, lists the effects of the runs whose outcomes were committed.
SELECT
    id,
    status::text AS status,
    failure ->> 'message' AS failure,
    (coalesce(result, state) -> 'committed')::text AS committed,
    coalesce((result ->> 'payments')::bigint, 0) AS payments,
    coalesce((result ->> 'lines')::bigint, 0) AS lines,
    (extract(epoch FROM inserted_at) * 1000000)::bigint AS inserted_at,
    (extract(epoch FROM finished_at) * 1000000)::bigint AS finished_at
FROM instances
WHERE parent_id IS NULL
ORDER BY id
