-- Locks claims of a worker: waits for commits that are still in progress, and keeps out the reaper and later
-- commits until the transaction ends. The statement after it has a snapshot that sees what they did.
-- What was taken back from a claim is not named in it any more, even if the claim is still there.
-- In the order of the numbers, as every other statement that locks several.
-- Index: the primary key of claims, one probe per claim: with `= ANY`, an order by number may be had by reading
-- every claim of the worker, dead versions included.
SELECT claim.number, claim.instance_ids, claim.seqs
FROM (
    SELECT DISTINCT number
    FROM unnest($2::bigint[]) AS input (number)
    ORDER BY number
) AS input
CROSS JOIN LATERAL (
    SELECT number, instance_ids, seqs
    FROM durable.claims
    WHERE worker_id = $1::bigint AND number = input.number
    FOR UPDATE
) AS claim
