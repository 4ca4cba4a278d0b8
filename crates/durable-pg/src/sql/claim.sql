-- Claims up to $4 instances of these lanes for a worker, in the order of priority and eligible time, as one
-- batch with one row in `claims` (rules CLAIM-1, CLAIM-2). Answers at least one row; without an instance it
-- carries only what is said of all: whether the worker is alive, and when the next row of `scheduled` is due.
--
-- Never waits: rows that another claim holds are skipped. How many to take from each lane is counted first,
-- without locks; with one lane there is nothing to count. A row of `ready` is never updated, so what this
-- snapshot sees is what is deleted, and deleting by ctid is right here; it is a TID scan whatever the
-- statistics say.
--
-- Index: the primary key of ready, from the mark of each lane on, which normally is its beginning; that of
-- scheduled, one probe per lane; that of instances, one probe per claimed row; for a row that
-- has any, its inbox and children, by the primary key of signals and instances_parent (rule CLAIM-5).
-- A worker that was declared dead claims nothing; one whose row is gone fails the foreign key of claims.
-- The commit may be lost in a crash of the server: then the rows are ready again, and outcomes of the lost
-- claim find no claim (rule CLAIM-4). Not so when the claim takes a concurrency key: it would be free while a step
-- runs with it.
--
-- Rows with limits (rule LIM-7): one whose key has no room, or others waiting before it, goes to `waiting`, under the lock
-- of the row of that key. A concurrency key without a gate is taken here, by the first one of each key: its row
-- is the lock (LIM-1). A key that somebody else has locked is not waited for: its rows stay ready. Gates and rate
-- limits are counted elsewhere. A row that must end cancelled needs none of them.
-- Index: the primary keys of instances and limits, one probe per row with limits; that of limit_keys, one per key.
WITH asynchronous AS MATERIALIZED (
    SELECT
        current_setting('synchronous_commit') AS before,
        set_config('synchronous_commit', 'off', true)
), worker AS MATERIALIZED (
    SELECT worker.id
    FROM asynchronous
    CROSS JOIN durable.workers AS worker
    WHERE worker.id = $1::bigint AND worker.dead_at IS NULL
), lane AS MATERIALIZED (
    SELECT
        input.id,
        coalesce(input.priority, (-32768)::smallint) AS priority,
        coalesce(timestamptz '2000-01-01 00:00+00' + input.eligible_us * interval '1 microsecond', '-infinity')
            AS eligible_at,
        coalesce(input.instance_id, 0) AS instance_id,
        coalesce(timestamptz '2000-01-01 00:00+00' + input.due_us * interval '1 microsecond', '-infinity')
            AS due_at
    FROM unnest($3::integer[], $5::smallint[], $6::bigint[], $7::bigint[], $8::bigint[])
        AS input (id, priority, eligible_us, instance_id, due_us)
), filled AS MATERIALIZED (
    SELECT lane.*
    FROM lane
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.ready AS ready
        WHERE ready.lane_id = lane.id
            AND (ready.priority, ready.eligible_at, ready.instance_id)
                >= (lane.priority, lane.eligible_at, lane.instance_id)
        LIMIT 1
    ) AS ready
), quota AS MATERIALIZED (
    SELECT filled.*, $4::bigint AS instances
    FROM filled
    WHERE (SELECT count(*) FROM filled) = 1
    UNION ALL
    SELECT filled.*, counted.instances
    FROM (
        SELECT merged.lane_id, count(*) AS instances
        FROM (
            SELECT head.lane_id
            FROM filled
            CROSS JOIN LATERAL (
                SELECT ready.lane_id, ready.priority, ready.eligible_at, ready.instance_id
                FROM durable.ready AS ready
                WHERE ready.lane_id = filled.id
                    AND (ready.priority, ready.eligible_at, ready.instance_id)
                        >= (filled.priority, filled.eligible_at, filled.instance_id)
                ORDER BY ready.priority, ready.eligible_at, ready.instance_id
                LIMIT $4::bigint
            ) AS head
            ORDER BY head.priority, head.eligible_at, head.instance_id
            LIMIT $4::bigint
        ) AS merged
        GROUP BY merged.lane_id
    ) AS counted
    JOIN filled ON filled.id = counted.lane_id
    WHERE (SELECT count(*) FROM filled) > 1
), picked AS (
    DELETE FROM durable.ready
    WHERE ctid = ANY (ARRAY(
        SELECT head.ctid
        FROM worker
        CROSS JOIN quota
        CROSS JOIN LATERAL (
            SELECT ready.ctid
            FROM durable.ready AS ready
            WHERE ready.lane_id = quota.id
                AND (ready.priority, ready.eligible_at, ready.instance_id)
                    >= (quota.priority, quota.eligible_at, quota.instance_id)
            ORDER BY ready.priority, ready.eligible_at, ready.instance_id
            LIMIT quota.instances
            FOR UPDATE SKIP LOCKED
        ) AS head
    ))
    RETURNING instance_id, seq, lane_id, priority, eligible_at, releases_key, recalled, clock_timestamp() AS picked_at
), contender AS MATERIALIZED (
    SELECT picked.*, instance.concurrency_key, instance.rate_key, instance.weight, gate.name IS NOT NULL AS gated
    FROM picked
    CROSS JOIN LATERAL (
        SELECT concurrency_key, rate_key, weight
        FROM durable.instances
        WHERE id = picked.instance_id AND cancellation IS NULL
        LIMIT 1
    ) AS instance
    LEFT JOIN LATERAL (
        SELECT name
        FROM durable.limits
        WHERE kind = 'gate' AND name = split_part(instance.concurrency_key, ':', 1) AND NOT removed
        LIMIT 1
    ) AS gate ON instance.concurrency_key IS NOT NULL
    WHERE picked.lane_id < 0
), known AS MATERIALIZED (
    SELECT wanted.kind, wanted.key, limit_key.*
    FROM (
        SELECT 'concurrency'::durable.limit_key_kind AS kind, concurrency_key AS key, gated
        FROM contender
        WHERE concurrency_key IS NOT NULL
        UNION
        SELECT 'rate', rate_key, true
        FROM contender
        WHERE rate_key IS NOT NULL
        ORDER BY kind, key
    ) AS wanted
    CROSS JOIN LATERAL (
        SELECT holder_id, waiting, coalesce(paused_until > clock_timestamp(), false) AS paused
        FROM durable.limit_keys
        WHERE kind = wanted.kind
            AND key = wanted.key
            AND (NOT wanted.gated OR waiting > 0 OR paused_until IS NOT NULL OR holder_id IS NOT NULL)
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS limit_key
), met AS MATERIALIZED (
    SELECT
        contender.*,
        own.key IS NOT NULL AS known,
        CASE
            WHEN rate.paused OR (rate.waiting > 0 AND contender.recalled IS NULL) THEN 'rate'
            WHEN own.paused OR (own.waiting > 0 AND contender.recalled IS NULL) OR own.holder_id IS NOT NULL
                THEN 'concurrency'
        END AS blocked_by
    FROM contender
    LEFT JOIN known AS rate ON rate.kind = 'rate' AND rate.key = contender.rate_key
    LEFT JOIN known AS own ON own.kind = 'concurrency' AND own.key = contender.concurrency_key
), turn AS MATERIALIZED (
    -- Of those that want a key and could have it, the first one gets it.
    SELECT
        met.*,
        CASE WHEN met.blocked_by IS NULL AND met.concurrency_key IS NOT NULL AND NOT met.gated THEN
            row_number() OVER (
                PARTITION BY met.concurrency_key, met.blocked_by IS NULL
                ORDER BY met.priority, met.eligible_at, met.instance_id
            )
        END AS turn
    FROM met
), minted AS (
    INSERT INTO durable.limit_keys (kind, key, holder_id, waiting, look_at)
    SELECT
        'concurrency',
        turn.concurrency_key,
        min(turn.instance_id) FILTER (WHERE turn.turn = 1),
        count(*) - 1,
        CASE WHEN count(*) > 1 THEN clock_timestamp() + interval '5 seconds' END
    FROM turn
    WHERE turn.turn IS NOT NULL AND NOT turn.known
    GROUP BY turn.concurrency_key
    ORDER BY turn.concurrency_key
    ON CONFLICT (kind, key) DO NOTHING
    RETURNING key
), fated AS MATERIALIZED (
    SELECT
        turn.*,
        CASE
            WHEN turn.blocked_by IS NOT NULL THEN turn.blocked_by
            WHEN turn.turn IS NULL THEN 'claimed'
            WHEN NOT turn.known AND turn.concurrency_key NOT IN (SELECT key FROM minted) THEN 'ready'
            WHEN turn.turn > 1 THEN 'concurrency'
            ELSE 'claimed'
        END AS fate
    FROM turn
), written AS (
    UPDATE durable.limit_keys AS limit_key
    SET holder_id = coalesce(change.winner_id, limit_key.holder_id),
        waiting = limit_key.waiting + change.waiting,
        look_at = CASE
            WHEN change.waiting > 0 THEN coalesce(limit_key.look_at, clock_timestamp() + interval '5 seconds')
            ELSE limit_key.look_at
        END
    FROM (
        SELECT kind, key, max(winner_id) AS winner_id, sum(waiting)::integer AS waiting
        FROM (
            SELECT
                'concurrency'::durable.limit_key_kind AS kind,
                concurrency_key AS key,
                CASE WHEN fate = 'claimed' THEN instance_id END AS winner_id,
                CASE WHEN fate = 'concurrency' THEN 1 ELSE 0 END AS waiting
            FROM fated
            WHERE known AND (fate = 'concurrency' OR (fate = 'claimed' AND turn IS NOT NULL))
            UNION ALL
            SELECT 'rate', rate_key, NULL, 1
            FROM fated
            WHERE fate = 'rate'
        ) AS each
        GROUP BY kind, key
    ) AS change
    WHERE limit_key.kind = change.kind AND limit_key.key BETWEEN change.key AND change.key
), set_aside AS (
    INSERT INTO durable.waiting (
        kind, key, priority, eligible_at, instance_id, lane_id, seq, weight, releases_key
    )
    SELECT
        fate::durable.limit_key_kind,
        CASE fate WHEN 'rate' THEN rate_key ELSE concurrency_key END,
        priority, eligible_at, instance_id, lane_id, seq,
        CASE fate WHEN 'rate' THEN coalesce(weight, 1) ELSE 1 END,
        releases_key
    FROM fated
    WHERE fate IN ('concurrency', 'rate')
), put_back AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key, recalled)
    SELECT lane_id, priority, eligible_at, instance_id, seq, releases_key, recalled
    FROM fated
    WHERE fate = 'ready'
), taken AS MATERIALIZED (
    SELECT *
    FROM picked
    WHERE lane_id > 0 OR instance_id NOT IN (SELECT instance_id FROM fated WHERE fate <> 'claimed')
), claimed AS (
    INSERT INTO durable.claims (worker_id, number, claimed_at, instance_ids, seqs)
    SELECT $1::bigint, $2::bigint, clock_timestamp(), array_agg(instance_id), array_agg(seq)
    FROM taken
    HAVING count(*) > 0
), releasing AS MATERIALIZED (
    -- A row that somebody else has locked keeps its key for one more step, as a claim waits for nobody.
    SELECT instance.id
    FROM (SELECT instance_id FROM taken WHERE releases_key ORDER BY instance_id) AS picked
    CROSS JOIN LATERAL (
        SELECT id
        FROM durable.instances
        WHERE id = picked.instance_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS instance
), released AS (
    UPDATE durable.instances
    SET correlation_guard = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM releasing))
)
SELECT
    common.alive,
    common.due_at,
    common.due_us,
    common.scan_us,
    common.set_aside,
    common.put_back,
    common.limits_version,
    common.synchronous,
    claimed.*
FROM (
    SELECT
        EXISTS (SELECT FROM worker) AS alive,
        due.due_at,
        (extract(epoch FROM due.due_at - clock_timestamp()) * 1000000)::bigint AS due_us,
        (extract(epoch FROM
            coalesce((SELECT min(picked_at) FROM picked), clock_timestamp()) - statement_timestamp()
        ) * 1000000)::bigint AS scan_us,
        fates.set_aside,
        fates.put_back,
        CASE WHEN fates.limited THEN (SELECT coalesce(max(version), 0) FROM durable.limits) END AS limits_version,
        CASE WHEN fates.takes_key THEN
            (SELECT set_config('synchronous_commit', before, true) FROM asynchronous)
        END AS synchronous
    FROM (
        SELECT
            count(*) FILTER (WHERE fate IN ('concurrency', 'rate')) AS set_aside,
            count(*) FILTER (WHERE fate = 'ready') AS put_back,
            count(*) > 0 AS limited,
            coalesce(bool_or(turn IS NOT NULL AND fate = 'claimed'), false) AS takes_key
        FROM fated
    ) AS fates
    CROSS JOIN (
        SELECT min(first.eligible_at) AS due_at
        FROM lane
        CROSS JOIN LATERAL (
            SELECT scheduled.eligible_at
            FROM durable.scheduled AS scheduled
            WHERE scheduled.lane_id = lane.id AND scheduled.eligible_at >= lane.due_at
            ORDER BY scheduled.eligible_at
            LIMIT 1
        ) AS first
    ) AS due
) AS common
LEFT JOIN (
    SELECT
        picked.instance_id, picked.seq, picked.lane_id, picked.priority, picked.eligible_at,
        instance.step, instance.state, instance.attempt, instance.crashes, instance.visit, instance.coordination,
        instance.limits
    FROM taken AS picked
    CROSS JOIN LATERAL (
        SELECT
            step, state::text AS state, attempt, crashes, visit,
            CASE
                WHEN num_nonnulls(
                    parent_id, signals_received, awaited, children_left, deadline_fired, cancellation
                ) > 0 THEN json_build_object(
                    'parent', parent_id,
                    'received', coalesce(signals_received, 0),
                    'awaited', coalesce(awaited, '{}'),
                    'deadline_fired', coalesce(deadline_fired, false),
                    'cancel_requested', cancellation IS NOT NULL,
                    'inbox', CASE WHEN signals_received IS NOT NULL THEN (
                        SELECT json_agg(
                            json_build_object('number', number, 'name', name, 'payload', payload) ORDER BY number
                        )
                        FROM durable.signals
                        WHERE instance_id = picked.instance_id
                    ) END,
                    'children', CASE WHEN children_left IS NOT NULL THEN (
                        SELECT json_agg(
                            json_build_object(
                                'id', child.id, 'machine', lane.machine, 'version', lane.machine_version,
                                'status', child.status, 'result', child.result, 'failure', child.failure
                            )
                            ORDER BY child.id
                        )
                        FROM durable.instances AS child
                        CROSS JOIN LATERAL (
                            SELECT machine, machine_version
                            FROM durable.lanes
                            WHERE id = abs(child.lane_id)
                            LIMIT 1
                        ) AS lane
                        WHERE child.parent_id = picked.instance_id AND child.parent_fan_out = instances.fan_out
                    ) END
                )::text
            END AS coordination,
            CASE WHEN lane_id < 0 AND cancellation IS NULL THEN json_build_object(
                'concurrency_key', concurrency_key,
                'rate_key', rate_key,
                'weight', weight,
                'gated', (SELECT gated FROM contender WHERE instance_id = picked.instance_id)
            )::text END AS limits
        FROM durable.instances AS instances
        WHERE id = picked.instance_id
        LIMIT 1
    ) AS instance
) AS claimed ON true
ORDER BY claimed.priority, claimed.eligible_at, claimed.instance_id
