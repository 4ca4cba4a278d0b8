-- Commits outcomes of one worker, each only while its claim stands: the claim must still exist, and the
-- instance must still carry the fencing number that was claimed (rule CLAIM-4). Forgets the claims in $11.
--
-- The claims are locked first, against the reaper, which locks them exclusively: either this commit sees the
-- claim gone, or the reaper skips it. Then the instances, in the order of their ids, so that no two commits
-- deadlock; an instance that somebody else holds is skipped and reported, so that no commit waits on a
-- caller's transaction (rule OUT-6), and its claim is kept even if it was to be forgotten. Of two outcomes of
-- one instance the first stands: it updates the row before the second looks for it.
--
-- The join with what was locked is by BETWEEN, not by `=`: an equality could be merged, so the planner would also
-- weigh a walk over the whole index, and choose it whenever the statistics say that the table is empty.
--
-- Index: the primary keys of claims and instances, one probe per claim and outcome. One more probe, without a
-- lock, for each outcome that did not get its row, to tell a locked row from a lost claim.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), input AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $2::bigint[], $3::bigint[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::text[], $10::text[]
    ) WITH ORDINALITY AS input (
        id, number, seq, kind, step, state, delay_us, result, failure, place
    )
    ORDER BY input.id, input.place
), claim AS MATERIALIZED (
    SELECT claim.number
    FROM (
        SELECT DISTINCT number
        FROM unnest($3::bigint[] || $11::bigint[]) AS input (number)
        ORDER BY number
    ) AS input
    CROSS JOIN LATERAL (
        SELECT number
        FROM durable.claims
        WHERE worker_id = $1::bigint AND number = input.number
        FOR KEY SHARE
    ) AS claim
), owned AS MATERIALIZED (
    SELECT input.*
    FROM input
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = input.id AND instance.seq = input.seq
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS instance
    WHERE (input.number IN (SELECT number FROM claim)) IS TRUE
), written AS (
    UPDATE durable.instances AS instance
    SET seq = instance.seq + 1,
        status = CASE
            WHEN owned.kind IN ('done', 'failed', 'cancelled') THEN owned.kind::durable.status
            ELSE 'active'
        END,
        step = coalesce(owned.step, instance.step),
        state = coalesce(owned.state::jsonb, instance.state),
        attempt = CASE owned.kind
            WHEN 'next' THEN 0
            WHEN 'retry' THEN instance.attempt + 1
            ELSE instance.attempt
        END,
        crashes = CASE WHEN owned.kind IN ('next', 'retry') THEN 0 ELSE instance.crashes END,
        eligible_at = CASE
            WHEN owned.kind IN ('next', 'retry') THEN clock.now + owned.delay_us * interval '1 microsecond'
            ELSE instance.eligible_at
        END,
        finished_at = CASE WHEN owned.kind IN ('done', 'failed', 'cancelled') THEN clock.now END,
        result = owned.result::jsonb,
        failure = CASE WHEN owned.kind = 'give_back' THEN instance.failure ELSE owned.failure::jsonb END,
        correlation_guard = CASE
            WHEN owned.kind NOT IN ('done', 'failed', 'cancelled') OR owned.kind = ANY (instance.correlation_scope)
                THEN instance.correlation_guard
        END
    FROM clock
    CROSS JOIN owned
    WHERE instance.id BETWEEN owned.id AND owned.id
    RETURNING
        owned.place,
        instance.id, instance.seq, instance.lane_id, instance.priority, instance.eligible_at, instance.status,
        CASE
            WHEN instance.correlation_guard IS NOT NULL AND 'executing' <> ALL (instance.correlation_scope) THEN true
        END AS releases_key
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
    WHERE status = 'active' AND eligible_at <= (SELECT now FROM clock)
), postponed AS (
    INSERT INTO durable.scheduled (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
    WHERE status = 'active' AND eligible_at > (SELECT now FROM clock)
), finished AS (
    INSERT INTO durable.finished (finished_at, status, instances, instance_ids)
    SELECT (SELECT now FROM clock), status, count(*), array_agg(id)
    FROM written
    WHERE status <> 'active'
    GROUP BY status
), locked AS MATERIALIZED (
    SELECT input.place, input.number
    FROM input
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.instances AS instance
        WHERE instance.id = input.id AND instance.seq = input.seq
        LIMIT 1
    ) AS instance
    WHERE (input.number IN (SELECT number FROM claim)) IS TRUE
        AND (input.id NOT IN (SELECT id FROM owned)) IS TRUE
), closed AS (
    -- Asking what is locked first also keeps the order: the rows are deleted after they were locked above.
    DELETE FROM durable.claims
    WHERE worker_id = $1::bigint
        AND number = ANY ($11::bigint[])
        AND number <> ALL (ARRAY(SELECT number FROM locked))
)
SELECT
    (SELECT array_agg(place) FROM written) AS committed,
    (SELECT array_agg(place) FROM locked) AS locked
