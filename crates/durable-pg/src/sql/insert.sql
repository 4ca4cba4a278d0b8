-- Inserts a batch: all of it with its place rows, or nothing (rules INS-2, INS-3).
--
-- Ids are drawn first, so that they map back to the caller's order and break ties in that order. A key that an
-- instance visibly holds makes its entry a duplicate; a holder that is not visible yet makes the insert wait,
-- and then do nothing: the caller of this statement sees an id that is neither inserted nor a duplicate.
-- Keys are inserted in one order, so that two nodes with the same keys cannot deadlock (rule INS-4).
--
-- An instance with limits carries them ($11 to $13), and the negative number of its lane. No table of limits is touched
-- (rule INS-5).
--
-- Children carry their parent ($9) and the number of its fan-out ($10).
--
-- Index: instances_correlation_guard, once per entry that has a key.
-- Also runs on a caller's connection, so it holds nothing whose plan depends on statistics.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), entry AS MATERIALIZED (
    SELECT
        input.place,
        nextval('durable.instances_id_seq'::regclass) AS id,
        input.lane_id,
        input.priority,
        greatest(
            clock.now,
            CASE
                WHEN input.at_us IS NULL THEN clock.now + input.delay_us * interval '1 microsecond'
                ELSE timestamptz 'epoch' + input.at_us * interval '1 microsecond'
            END
        ) AS eligible_at,
        input.step,
        input.state,
        input.correlation_key,
        input.correlation_scope,
        input.parent_id,
        input.parent_fan_out,
        input.concurrency_key,
        input.rate_key,
        input.weight,
        holder.id AS holder
    FROM clock
    CROSS JOIN unnest(
        $1::integer[], $2::smallint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::bigint[], $10::integer[], $11::text[], $12::text[], $13::integer[]
    ) WITH ORDINALITY AS input (
        lane_id, priority, delay_us, at_us, step, state, correlation_key, correlation_scope,
        parent_id, parent_fan_out, concurrency_key, rate_key, weight, place
    )
    LEFT JOIN LATERAL (
        SELECT instance.id
        FROM durable.instances AS instance
        WHERE instance.correlation_guard = input.correlation_key
        LIMIT 1
    ) AS holder ON input.correlation_key IS NOT NULL
), without_key AS (
    -- Apart, because ON CONFLICT costs each row one more record of WAL.
    INSERT INTO durable.instances (
        id, inserted_at, eligible_at, lane_id, priority, step, state, parent_id, parent_fan_out,
        concurrency_key, rate_key, weight
    )
    SELECT
        entry.id, clock.now, entry.eligible_at, entry.lane_id, entry.priority, entry.step, entry.state::jsonb,
        entry.parent_id, entry.parent_fan_out, entry.concurrency_key, entry.rate_key, entry.weight
    FROM clock
    CROSS JOIN entry
    WHERE entry.correlation_key IS NULL
    RETURNING id, seq, lane_id, priority, eligible_at
), with_key AS (
    INSERT INTO durable.instances (
        id, inserted_at, eligible_at, lane_id, priority, step, state,
        correlation_key, correlation_scope, correlation_guard, parent_id, parent_fan_out,
        concurrency_key, rate_key, weight
    )
    SELECT
        entry.id, clock.now, entry.eligible_at, entry.lane_id, entry.priority, entry.step, entry.state::jsonb,
        entry.correlation_key, entry.correlation_scope::text[], entry.correlation_key,
        entry.parent_id, entry.parent_fan_out, entry.concurrency_key, entry.rate_key, entry.weight
    FROM clock
    CROSS JOIN entry
    WHERE entry.correlation_key IS NOT NULL AND entry.holder IS NULL
    ORDER BY entry.correlation_key, entry.id
    ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
    RETURNING
        id, seq, lane_id, priority, eligible_at,
        CASE WHEN 'executing' <> ALL (correlation_scope) THEN true END AS releases_key
), inserted AS (
    SELECT id, seq, lane_id, priority, eligible_at, NULL::boolean AS releases_key FROM without_key
    UNION ALL
    SELECT id, seq, lane_id, priority, eligible_at, releases_key FROM with_key
), placed AS (
    INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM inserted
    WHERE eligible_at <= (SELECT now FROM clock)
), postponed AS (
    INSERT INTO durable.scheduled (lane_id, priority, eligible_at, instance_id, seq, releases_key)
    SELECT lane_id, priority, eligible_at, id, seq, releases_key
    FROM inserted
    WHERE eligible_at > (SELECT now FROM clock)
)
SELECT
    (SELECT array_agg(id ORDER BY place) FROM entry) AS ids,
    -- Only of entries with a key is anything said: the others are inserted.
    (SELECT array_agg(holder ORDER BY place) FROM entry HAVING bool_or(correlation_key IS NOT NULL)) AS holders,
    (SELECT array_agg(id) FROM with_key) AS inserted
