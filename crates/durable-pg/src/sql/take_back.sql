-- Returns what is left of these claims to runnable, with $3 more attempts and crashes: 1 when its worker died,
-- 0 when it is given back. The eligible time stays, so that it keeps its place in the order.
--
-- A claim that a commit or another reaper holds is skipped. An instance that a caller's transaction holds stays
-- behind in its claim, for the next time; so does one that this snapshot shows too old. A claim of which
-- nothing is left is deleted. Says how many instances it returned and how many claims it deleted.
--
-- Claims are locked in the order of their keys, then instances in that of their
-- ids, then the concurrency keys that they held in that of their text, as everywhere: no two of these statements, and no commit, can deadlock (rule LEASE-5).
--
-- No statement here joins what it locked with the table: such a join is planned from statistics, and reads the
-- whole table when they say that it is empty. Claims are written by ctid, as they were locked above; one that
-- another reaper shrank between the snapshot and the lock is not found so, and stays for the next time.
--
-- Index: the primary keys of claims, instances and limit_keys.
WITH claim AS MATERIALIZED (
    SELECT claim.*
    FROM (
        SELECT DISTINCT worker_id, number
        FROM unnest($1::bigint[], $2::bigint[]) AS input (worker_id, number)
        ORDER BY worker_id, number
    ) AS input
    CROSS JOIN LATERAL (
        SELECT ctid AS place, worker_id, number, instance_ids, seqs
        FROM durable.claims
        WHERE worker_id = input.worker_id AND number = input.number
        FOR UPDATE SKIP LOCKED
    ) AS claim
), held AS MATERIALIZED (
    SELECT claim.place, entry.id, entry.seq
    FROM claim
    CROSS JOIN LATERAL unnest(claim.instance_ids, claim.seqs) AS entry (id, seq)
    ORDER BY entry.id
), owned AS MATERIALIZED (
    SELECT held.id
    FROM held
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = held.id AND instance.seq = held.seq
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS instance
), written AS (
    UPDATE durable.instances AS instance
    SET seq = instance.seq + 1,
        attempt = instance.attempt + $3::smallint,
        crashes = least(instance.crashes + $3::smallint, 32767)
    WHERE instance.id = ANY (ARRAY(SELECT id FROM owned))
    RETURNING
        instance.id, instance.seq, instance.lane_id, instance.priority, instance.eligible_at,
        CASE
            WHEN instance.correlation_guard IS NOT NULL AND 'executing' <> ALL (instance.correlation_scope) THEN true
        END AS releases_key,
        instance.concurrency_key
), leaving AS MATERIALIZED (
    SELECT written.id, written.concurrency_key AS key
    FROM (SELECT id, concurrency_key FROM written WHERE concurrency_key IS NOT NULL ORDER BY concurrency_key) AS written
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.limit_keys
        WHERE kind = 'concurrency' AND key = written.concurrency_key AND holder_id = written.id
        FOR NO KEY UPDATE
    ) AS limit_key
), freed AS (
    UPDATE durable.limit_keys AS limit_key
    SET holder_id = NULL
    FROM leaving
    WHERE limit_key.kind = 'concurrency'
        AND limit_key.key BETWEEN leaving.key AND leaving.key
        AND limit_key.holder_id = leaving.id
    RETURNING limit_key.key, limit_key.waiting
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
), behind AS MATERIALIZED (
    SELECT held.place, array_agg(held.id) AS instance_ids, array_agg(held.seq) AS seqs
    FROM held
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = held.id AND instance.seq = held.seq
        LIMIT 1
    ) AS instance
    WHERE (held.id NOT IN (SELECT id FROM owned)) IS TRUE
    GROUP BY held.place
), shrunk AS (
    UPDATE durable.claims AS claim
    SET (instance_ids, seqs) = (
        SELECT behind.instance_ids, behind.seqs
        FROM behind
        WHERE behind.place = claim.ctid
    )
    WHERE claim.ctid = ANY (ARRAY(SELECT place FROM behind))
), deleted AS (
    DELETE FROM durable.claims
    WHERE ctid = ANY (ARRAY(
        SELECT place FROM claim
        EXCEPT
        SELECT place FROM behind
    ))
    RETURNING number
)
SELECT
    (SELECT count(*) FROM written) AS instances,
    (SELECT count(*) FROM deleted) AS claims,
    (SELECT array_agg(key ORDER BY key) FROM freed WHERE waiting > 0) AS freed
