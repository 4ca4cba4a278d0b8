-- Commits outcomes of one worker, each only while its claim stands: the claim must still exist, and the
-- instance must still carry the fencing number that was claimed (rule CLAIM-4). Forgets the claims in $11. An
-- outcome without a claim is an operator's, who holds the lock of the instance and has read its number under it.
--
-- The claims are locked first, against the reaper, which locks them exclusively: either this commit sees the
-- claim gone, or the reaper skips it. Then the instances and the parents of those that end ($17), in one order, that
-- of their ids, so that no two commits deadlock; an instance that somebody else holds is skipped and reported, with
-- the outcomes that count towards it, so that no commit waits on a caller's transaction (rule OUT-6), and
-- its claim is kept even if it was to be forgotten. Of two outcomes of one instance the first stands: it
-- updates the row before the second looks for it.
--
-- A wait, and an end, look at the inbox with the snapshot of this statement, which may be older than the lock: where
-- the locked row has received more signals than the snapshot shows, the outcome is reported as locked, to be tried
-- again. So no signal is overlooked, and none is left behind (rules SIG-1, SIG-2).
--
-- All that follows from an outcome is derived from what the update returns. A parent is counted down once for all of its
-- children in the batch (rule CHILD-3), and only for those of its last fan-out (CHILD-1). Children themselves are
-- inserted after this, in the same transaction.
--
-- The join with what was locked is by BETWEEN, not by `=`: an equality could be merged, so the planner would also
-- weigh a walk over the whole index, and choose it whenever the statistics say that the table is empty. For the same
-- reason no look at another table is an EXISTS, which could be hashed, and none is without LIMIT or OFFSET.
--
-- A concurrency key that the instance held is free again, unless it runs ahead with it: its row is locked in the order of
-- the keys, after all instances. Who waits for it is brought back by another statement, whose snapshot is newer than
-- that lock. An outcome that is blocked gets no place here: the statement after this one, in the same transaction, gives
-- it one in `waiting`.
--
-- Index: the primary keys of claims and instances, one probe per claim, outcome and parent; those of signals,
-- signal_keys and deadlines, one probe per outcome that has any. One more probe, without a lock, for each outcome that
-- did not get its row, to tell a locked row from a lost claim.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), input AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT *
        FROM unnest(
            $2::bigint[], $3::bigint[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::bigint[],
            $9::text[], $10::text[], $12::bigint[], $13::integer[], $14::text[], $15::bigint[], $16::integer[],
            $19::boolean[], $20::text[], $21::text[], $22::integer[]
        ) WITH ORDINALITY AS input (
            id, number, seq, kind, step, state, delay_us, result, failure,
            parent_id, received, awaits, timeout_us, needed, relimits, concurrency_key, rate_key, weight, place
        )
        UNION ALL
        SELECT
            parent.id, NULL, NULL, 'parent', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL, 0
        FROM unnest($17::bigint[]) AS parent (id)
    ) AS input
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
), held AS MATERIALIZED (
    SELECT
        input.*,
        instance.awaited AS given,
        instance.signals_received AS last_signal,
        instance.cancellation IS NOT NULL AS cancelling,
        CASE WHEN instance.joined IS NULL THEN instance.parent_fan_out END AS counts_for,
        instance.concurrency_key AS held_key
    FROM input
    CROSS JOIN LATERAL (
        SELECT
            instance.awaited, instance.signals_received, instance.cancellation, instance.joined, instance.parent_fan_out,
            instance.concurrency_key
        FROM durable.instances AS instance
        WHERE instance.id = input.id AND (input.kind = 'parent' OR instance.seq = input.seq)
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS instance
    WHERE input.number IS NULL OR (input.number IN (SELECT number FROM claim)) IS TRUE
), written AS (
    UPDATE durable.instances AS instance
    SET seq = instance.seq + 1,
        status = CASE
            WHEN owned.ends THEN owned.kind::durable.status
            WHEN owned.kind = 'await' AND NOT owned.woken THEN 'awaiting_signal'
            WHEN owned.kind = 'schedule_children' THEN 'awaiting_children'
            ELSE 'active'
        END,
        step = coalesce(owned.step, instance.step),
        state = coalesce(owned.state::jsonb, instance.state),
        visit = CASE WHEN owned.progresses THEN coalesce(instance.visit, 0) + 1 ELSE instance.visit END,
        attempt = CASE
            WHEN owned.progresses THEN 0
            WHEN owned.kind = 'retry' THEN instance.attempt + 1
            ELSE instance.attempt
        END,
        crashes = CASE WHEN owned.progresses OR owned.kind = 'retry' THEN 0 ELSE instance.crashes END,
        eligible_at = CASE
            WHEN owned.progresses OR owned.kind = 'retry'
                THEN clock.now + coalesce(owned.delay_us, 0) * interval '1 microsecond'
            ELSE instance.eligible_at
        END,
        deadline_at = CASE WHEN NOT owned.woken THEN clock.now + owned.timeout_us * interval '1 microsecond' END,
        deadline_fired = CASE WHEN owned.stays THEN instance.deadline_fired END,
        awaited = CASE WHEN owned.stays THEN instance.awaited ELSE owned.awaits::text[] END,
        fan_out = CASE
            WHEN owned.kind = 'schedule_children' THEN coalesce(instance.fan_out, 0) + 1
            ELSE instance.fan_out
        END,
        children_left = CASE WHEN owned.stays THEN instance.children_left ELSE owned.needed END,
        joined = CASE WHEN owned.ends AND instance.parent_id IS NOT NULL THEN true ELSE instance.joined END,
        cancellation = CASE WHEN NOT owned.ends THEN instance.cancellation END,
        finished_at = CASE WHEN owned.ends THEN clock.now END,
        result = owned.result::jsonb,
        failure = CASE owned.kind
            WHEN 'give_back' THEN instance.failure
            WHEN 'blocked' THEN instance.failure
            WHEN 'cancelled' THEN coalesce(instance.cancellation, owned.failure::jsonb)
            ELSE owned.failure::jsonb
        END,
        lane_id = CASE
            WHEN owned.relimits IS NOT TRUE THEN instance.lane_id
            WHEN num_nonnulls(owned.concurrency_key, owned.rate_key) > 0 THEN -abs(instance.lane_id)
            ELSE abs(instance.lane_id)
        END,
        concurrency_key = CASE WHEN owned.relimits THEN owned.concurrency_key ELSE instance.concurrency_key END,
        rate_key = CASE WHEN owned.relimits THEN owned.rate_key ELSE instance.rate_key END,
        weight = CASE WHEN owned.relimits THEN owned.weight ELSE instance.weight END,
        correlation_guard = CASE
            WHEN owned.ends AND (owned.kind = ANY (instance.correlation_scope)) IS NOT TRUE THEN NULL
            WHEN owned.kind = 'await' AND NOT owned.woken AND 'awaiting_signal' <> ALL (instance.correlation_scope)
                THEN NULL
            ELSE instance.correlation_guard
        END
    FROM clock
    CROSS JOIN (
        SELECT
            held.*,
            held.kind IN ('done', 'failed', 'cancelled') AS ends,
            held.kind IN ('next', 'ahead', 'await', 'schedule_children') AS progresses,
            held.kind IN ('retry', 'give_back', 'blocked') AS stays,
            held.kind = 'await' AND held.last_signal IS NOT NULL AND (
                SELECT true
                FROM durable.signals AS signal
                WHERE signal.instance_id = held.id
                    AND signal.name = ANY (held.awaits::text[])
                    AND NOT (signal.number <= held.received AND signal.name = ANY (coalesce(held.given, '{}')))
                LIMIT 1
            ) IS TRUE AS woken
        FROM held
        WHERE held.kind <> 'parent'
            AND (held.kind = 'cancelled' OR NOT held.cancelling)
            AND (
                held.last_signal IS NULL
                OR held.kind NOT IN ('await', 'done', 'failed', 'cancelled')
                OR held.last_signal = (
                    SELECT instance.signals_received
                    FROM durable.instances AS instance
                    WHERE instance.id = held.id
                    LIMIT 1
                )
            )
            AND (
                held.parent_id IS NULL
                OR held.kind NOT IN ('done', 'failed', 'cancelled')
                OR (held.parent_id IN (SELECT id FROM held WHERE kind = 'parent')) IS TRUE
                OR (
                    SELECT true
                    FROM durable.instances AS parent
                    WHERE parent.id = held.parent_id
                    LIMIT 1
                ) IS NULL
            )
    ) AS owned
    WHERE instance.id BETWEEN owned.id AND owned.id
    RETURNING
        owned.place, owned.kind, owned.ends, owned.stays, owned.given, owned.received, owned.cancelling,
        owned.last_signal, owned.counts_for,
        CASE
            WHEN owned.kind <> 'ahead' OR owned.held_key IS DISTINCT FROM instance.concurrency_key THEN owned.held_key
        END AS held_key,
        instance.id, instance.seq, instance.lane_id, instance.priority, instance.eligible_at, instance.status,
        instance.parent_id, instance.fan_out, instance.deadline_at,
        CASE
            WHEN instance.correlation_guard IS NOT NULL AND 'executing' <> ALL (instance.correlation_scope) THEN true
        END AS releases_key
), ended AS MATERIALIZED (
    SELECT parent_id, counts_for AS fan_out, count(*) AS children
    FROM written
    WHERE ends AND counts_for IS NOT NULL
    GROUP BY parent_id, counts_for
), counted AS (
    UPDATE durable.instances AS instance
    SET children_left = instance.children_left - ended.children,
        seq = CASE WHEN instance.children_left <= ended.children THEN instance.seq + 1 ELSE instance.seq END,
        status = CASE WHEN instance.children_left <= ended.children THEN 'active' ELSE instance.status END,
        eligible_at = CASE WHEN instance.children_left <= ended.children THEN clock.now ELSE instance.eligible_at END
    FROM clock
    CROSS JOIN ended
    WHERE instance.id BETWEEN ended.parent_id AND ended.parent_id
        AND instance.fan_out = ended.fan_out
        AND instance.status = 'awaiting_children'
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
    WHERE status = 'active' AND kind NOT IN ('ahead', 'blocked') AND eligible_at <= (SELECT now FROM clock)
    UNION ALL
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM counted
    WHERE status = 'active'
), postponed AS (
    INSERT INTO durable.scheduled (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM written
    WHERE status = 'active' AND eligible_at > (SELECT now FROM clock)
), kept AS (
    INSERT INTO durable.claims (worker_id, number, claimed_at, instance_ids, seqs)
    SELECT $1::bigint, $18::bigint, (SELECT now FROM clock), array_agg(id), array_agg(seq)
    FROM written
    WHERE kind = 'ahead'
    HAVING count(*) > 0
), leaving AS MATERIALIZED (
    SELECT written.id, written.held_key AS key
    FROM (SELECT id, held_key FROM written WHERE held_key IS NOT NULL ORDER BY held_key) AS written
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.limit_keys
        WHERE kind = 'concurrency' AND key = written.held_key AND holder_id = written.id
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
), timed AS (
    INSERT INTO durable.deadlines (deadline_at, instance_id, seq)
    SELECT deadline_at, id, seq
    FROM written
    WHERE status = 'awaiting_signal' AND deadline_at IS NOT NULL
), met AS (
    DELETE FROM durable.deadlines
    WHERE ctid = ANY (ARRAY(
        SELECT deadline.ctid
        FROM counted
        CROSS JOIN LATERAL (
            SELECT deadline.ctid
            FROM durable.deadlines AS deadline
            WHERE deadline.deadline_at = counted.deadline_at AND deadline.instance_id = counted.id
            LIMIT 1
        ) AS deadline
        WHERE counted.status = 'active'
    ))
), consumed AS (
    DELETE FROM durable.signals
    WHERE ctid = ANY (ARRAY(
        SELECT signal.ctid
        FROM written
        CROSS JOIN LATERAL (
            SELECT signal.ctid
            FROM durable.signals AS signal
            WHERE signal.instance_id = written.id
                AND (written.ends OR (signal.number <= written.received AND signal.name = ANY (written.given)))
            OFFSET 0
        ) AS signal
        WHERE written.last_signal IS NOT NULL AND NOT written.stays AND written.kind <> 'await'
    ))
), forgotten AS (
    DELETE FROM durable.signal_keys
    WHERE ctid = ANY (ARRAY(
        SELECT known.ctid
        FROM written
        CROSS JOIN LATERAL (
            SELECT known.ctid
            FROM durable.signal_keys AS known
            WHERE known.instance_id = written.id
            OFFSET 0
        ) AS known
        WHERE written.last_signal IS NOT NULL AND written.ends
    ))
), answered AS (
    DELETE FROM durable.cancel_requests
    WHERE instance_id = ANY (ARRAY(SELECT id FROM written WHERE ends AND cancelling))
), finished AS (
    INSERT INTO durable.finished (finished_at, status, instances, instance_ids)
    SELECT (SELECT now FROM clock), status, count(*), array_agg(id)
    FROM written
    WHERE ends
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
        AND (input.id NOT IN (SELECT id FROM written)) IS TRUE
), closed AS (
    -- Asking what is locked first also keeps the order: the rows are deleted after they were locked above.
    DELETE FROM durable.claims
    WHERE worker_id = $1::bigint
        AND number = ANY ($11::bigint[])
        AND number <> ALL (ARRAY(SELECT number FROM locked))
)
SELECT
    (SELECT array_agg(place) FROM written) AS committed,
    (SELECT array_agg(place) FROM locked) AS locked,
    (SELECT array_agg(place) FROM held WHERE cancelling AND kind NOT IN ('parent', 'cancelled')) AS cancelling,
    (SELECT array_agg(place) FROM written WHERE kind = 'schedule_children') AS spawning,
    (SELECT array_agg(fan_out) FROM written WHERE kind = 'schedule_children') AS fan_outs,
    (
        SELECT array_agg(lane.queue)
        FROM counted
        CROSS JOIN LATERAL (
            SELECT queue
            FROM durable.lanes
            WHERE id = abs(counted.lane_id)
            LIMIT 1
        ) AS lane
        WHERE counted.status = 'active'
    ) AS woken,
    (SELECT array_agg(key ORDER BY key) FROM freed WHERE waiting > 0) AS freed
