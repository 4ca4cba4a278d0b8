-- Limits: concurrency keys, gates, rate limits, and what waits for them.
--
-- An instance that has any stands in the limited half of its lane: its lane_id, and that of its place rows, is the
-- negative of the lane's. So a claim tells them apart without a look, and can leave them out; and instances without
-- limits cost nothing.

CREATE TYPE durable.limit_kind AS ENUM ('gate', 'rate');
CREATE TYPE durable.limit_key_kind AS ENUM ('concurrency', 'rate');

ALTER TABLE durable.instances
    ADD COLUMN concurrency_key text,
    ADD COLUMN rate_key text,
    -- How many tokens its next step takes; NULL without a rate limit.
    ADD COLUMN weight integer;

-- True when the row was brought back from `waiting`: it does not queue up behind the others of its key again.
ALTER TABLE durable.ready ADD COLUMN recalled boolean;

-- What the limits allow: the same for all nodes. A removed one stays, so that the version never falls.
CREATE TABLE durable.limits (
    kind durable.limit_kind NOT NULL,
    name text NOT NULL,
    -- The slots of a gate, the burst of a rate limit.
    capacity integer NOT NULL CHECK (capacity > 0),
    -- How many tokens a rate limit adds per period.
    allowed integer CHECK (allowed >= 0),
    period_us bigint CHECK (period_us > 0),
    shards smallint NOT NULL CHECK (shards > 0),
    -- Rises with every change of any limit.
    version bigint NOT NULL,
    removed boolean NOT NULL,
    PRIMARY KEY (kind, name)
);

-- The keys that are held, or waited for. A row is the lock under which instances begin to wait for its key, and under
-- which they are brought back. It outlives its holder, so that the next claim need not insert it again; the
-- collector forgets it.
CREATE TABLE durable.limit_keys (
    kind durable.limit_key_kind NOT NULL,
    -- The instance that executes with a concurrency key without a gate (rule LIM-1): there is room for one.
    holder_id bigint,
    -- How many rows of `waiting` there are.
    waiting integer NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    -- When somebody looks whether there is room; NULL when nothing waits.
    look_at timestamptz,
    paused_until timestamptz,
    key text NOT NULL,
    PRIMARY KEY (kind, key)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);

CREATE INDEX limit_keys_look_at ON durable.limit_keys (look_at) WHERE look_at IS NOT NULL;

-- Runnable instances that wait for a key, in the order in which they come back.
CREATE TABLE durable.waiting (
    kind durable.limit_key_kind NOT NULL,
    priority smallint NOT NULL,
    -- What it takes: 1 of a concurrency key, its tokens of a rate limit.
    weight integer NOT NULL CHECK (weight > 0),
    eligible_at timestamptz NOT NULL,
    instance_id bigint NOT NULL,
    lane_id integer NOT NULL,
    seq integer NOT NULL,
    releases_key boolean,
    key text NOT NULL,
    PRIMARY KEY (kind, key, priority, eligible_at, instance_id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);

-- Brings instances back to `ready` that wait for these keys: the first of each key, as many as there is room for (rule
-- LIM-7). One row of the answer for each key that has a row, with its place in the input.
--
-- Two statements, each with a snapshot of its own. The first locks the keys, in order: whoever has begun to wait under
-- such a lock is seen by the second. Nothing else is locked, so no claim and no commit can deadlock with it.
CREATE FUNCTION durable.bring_back(
    key_kinds durable.limit_key_kind[], key_texts text[], rooms integer[], unit_us bigint[]
)
RETURNS TABLE (place bigint, instances bigint, queues text[], look_us bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $function$
#variable_conflict use_column
BEGIN
    -- Index: the primary key of limit_keys, one probe per key.
    PERFORM
    FROM (
        SELECT DISTINCT input.kind, input.key
        FROM unnest(key_kinds, key_texts) AS input (kind, key)
        ORDER BY input.kind, input.key
    ) AS input
    CROSS JOIN LATERAL (
        SELECT
        FROM durable.limit_keys AS limit_key
        WHERE limit_key.kind = input.kind AND limit_key.key = input.key AND limit_key.waiting > 0
        FOR NO KEY UPDATE
    ) AS limit_key;

    -- Index: the primary keys of limit_keys, limits and waiting; of the last, one scan per key that ends with its room.
    RETURN QUERY
    WITH clock AS MATERIALIZED (
        SELECT clock_timestamp() AS now
    ), input AS MATERIALIZED (
        SELECT DISTINCT ON (input.kind, input.key) input.*
        FROM unnest(key_kinds, key_texts, rooms, unit_us) WITH ORDINALITY AS input (kind, key, room, unit_us, place)
        ORDER BY input.kind, input.key, input.place
    ), wanted AS MATERIALIZED (
        SELECT
            input.*,
            limit_key.paused_until,
            allowed.capacity,
            CASE
                WHEN limit_key.paused_until > clock.now THEN 0
                WHEN input.kind = 'rate' THEN input.room
                WHEN limit_key.holder_id IS NOT NULL THEN 0
                WHEN allowed.capacity IS NULL THEN 1
                ELSE input.room
            END AS units
        FROM clock
        CROSS JOIN input
        CROSS JOIN LATERAL (
            SELECT limit_key.holder_id, limit_key.paused_until
            FROM durable.limit_keys AS limit_key
            WHERE limit_key.kind = input.kind AND limit_key.key = input.key AND limit_key.waiting > 0
            LIMIT 1
        ) AS limit_key
        LEFT JOIN LATERAL (
            SELECT allowed.capacity
            FROM durable.limits AS allowed
            WHERE allowed.kind = CASE input.kind WHEN 'rate' THEN 'rate' ELSE 'gate' END::durable.limit_kind
                AND allowed.name = split_part(input.key, ':', 1)
                AND NOT allowed.removed
            LIMIT 1
        ) AS allowed ON true
    ), head AS MATERIALIZED (
        SELECT wanted.place, wanted.units, wanted.unit_us, row.*
        FROM wanted
        CROSS JOIN LATERAL (
            SELECT
                first.row,
                first.weight,
                sum(first.weight) OVER (ORDER BY first.priority, first.eligible_at, first.instance_id) AS total
            FROM (
                SELECT
                    waiting.ctid AS row, waiting.priority, waiting.eligible_at, waiting.instance_id,
                    -- One that the limit can never pay for must not hold up the others; its step will not start.
                    CASE WHEN waiting.weight > wanted.capacity THEN 1 ELSE waiting.weight END AS weight
                FROM durable.waiting AS waiting
                WHERE waiting.kind = wanted.kind AND waiting.key = wanted.key
                ORDER BY waiting.priority, waiting.eligible_at, waiting.instance_id
                -- One more than can come, to know how long the next one has to wait.
                LIMIT least(greatest(wanted.units, 0), 1000)::bigint + 1
            ) AS first
        ) AS row
    ), moved AS (
        DELETE FROM durable.waiting AS waiting
        WHERE waiting.ctid = ANY (ARRAY(SELECT head.row FROM head WHERE head.total <= least(head.units, 1000)))
        RETURNING
            waiting.kind, waiting.key, waiting.lane_id, waiting.priority, waiting.eligible_at, waiting.instance_id,
            waiting.seq, waiting.releases_key
    ), placed AS (
        INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq, releases_key, recalled)
        SELECT
            moved.lane_id, moved.priority, moved.eligible_at, moved.instance_id, moved.seq, moved.releases_key, true
        FROM moved
    ), brought AS MATERIALIZED (
        SELECT
            wanted.place, wanted.kind, wanted.key, wanted.paused_until,
            (SELECT count(*) FROM moved WHERE moved.kind = wanted.kind AND moved.key = wanted.key) AS instances,
            (
                SELECT array_agg(DISTINCT lane.queue)
                FROM moved
                CROSS JOIN LATERAL (
                    SELECT lane.queue
                    FROM durable.lanes AS lane
                    WHERE lane.id = abs(moved.lane_id)
                    LIMIT 1
                ) AS lane
                WHERE moved.kind = wanted.kind AND moved.key = wanted.key
            ) AS queues,
            (
                -- What the first one that stays still lacks.
                SELECT head.unit_us * (min(head.total) - least(head.units, 1000))
                FROM head
                WHERE head.place = wanted.place AND head.total > least(head.units, 1000)
                GROUP BY head.units, head.unit_us
            ) AS lacks_us
        FROM wanted
    ), looked AS (
        UPDATE durable.limit_keys AS limit_key
        SET waiting = limit_key.waiting - brought.instances::integer,
            look_at = CASE
                WHEN limit_key.waiting > brought.instances THEN
                    CASE
                        WHEN brought.paused_until > clock.now THEN brought.paused_until
                        ELSE clock.now
                            + least(greatest(coalesce(brought.lacks_us, 5000000), 5000), 5000000) * interval '1 microsecond'
                    END
            END
        FROM clock
        CROSS JOIN brought
        WHERE limit_key.kind = brought.kind AND limit_key.key BETWEEN brought.key AND brought.key
        RETURNING brought.place, (extract(epoch FROM limit_key.look_at - clock.now) * 1000000)::bigint AS look_us
    )
    SELECT brought.place, brought.instances, brought.queues, looked.look_us
    FROM brought
    LEFT JOIN looked ON looked.place = brought.place;
END
$function$;

-- As before, and with what holds the first step back: a concurrency key, and a rate limit with a weight.
DROP FUNCTION durable.insert_instance(text, jsonb, text, text, integer, smallint, timestamptz, text);

CREATE FUNCTION durable.insert_instance(
    machine text,
    state jsonb,
    queue text DEFAULT 'default',
    step text DEFAULT 'perform',
    machine_version integer DEFAULT 1,
    priority smallint DEFAULT 100,
    run_at timestamptz DEFAULT NULL,
    correlation_key text DEFAULT NULL,
    concurrency_key text DEFAULT NULL,
    rate_key text DEFAULT NULL,
    weight integer DEFAULT 1,
    OUT id bigint,
    OUT duplicate boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $function$
#variable_conflict use_variable
DECLARE
    lane integer;
    now_is timestamptz := clock_timestamp();
    eligible timestamptz := greatest(now_is, coalesce(run_at, now_is));
    burst integer;
BEGIN
    PERFORM durable.check_name('step', step);
    IF correlation_key IS NOT NULL THEN
        PERFORM durable.check_name('correlation key', correlation_key);
    END IF;
    IF concurrency_key IS NOT NULL THEN
        PERFORM durable.check_name('concurrency key', concurrency_key);
    END IF;
    IF rate_key IS NOT NULL THEN
        PERFORM durable.check_name('rate limit key', rate_key);
        SELECT known.capacity INTO burst
        FROM durable.limits AS known
        WHERE known.kind = 'rate' AND known.name = split_part(rate_key, ':', 1) AND NOT known.removed;
        IF burst IS NULL THEN
            RAISE EXCEPTION 'no rate limit % is configured', split_part(rate_key, ':', 1)
                USING ERRCODE = '22023', HINT = 'Check the name before the first colon, or configure the limit first.';
        END IF;
        IF weight IS NULL OR weight < 1 OR weight > burst THEN
            RAISE EXCEPTION 'weight % is not between 1 and the burst of rate limit %, which is %',
                weight, split_part(rate_key, ':', 1), burst
                USING ERRCODE = '22023';
        END IF;
    END IF;
    IF eligible > now_is + interval '100 years' THEN
        RAISE EXCEPTION 'run_at lies more than 100 years away' USING ERRCODE = '22023';
    END IF;
    IF state IS NULL THEN
        RAISE EXCEPTION 'state is NULL' USING ERRCODE = '22023', HINT = 'Give the state as JSON.';
    END IF;
    SELECT known.id INTO lane
    FROM durable.lanes AS known
    WHERE known.queue = queue AND known.machine = machine AND known.machine_version = machine_version;
    IF lane IS NULL THEN
        RAISE EXCEPTION 'no worker has served machine % version % in queue % yet', machine, machine_version, queue
            USING ERRCODE = '22023', HINT = 'Check the names, or start a worker that serves them first.';
    END IF;
    IF num_nonnulls(concurrency_key, rate_key) > 0 THEN
        lane := -lane;
    END IF;
    -- Index: instances_correlation_guard, when a key is given.
    FOR attempt IN 1..10 LOOP
        INSERT INTO durable.instances (
            inserted_at, eligible_at, lane_id, priority, step, state, correlation_key, correlation_guard,
            concurrency_key, rate_key, weight
        )
        VALUES (
            now_is, eligible, lane, priority, step, state, correlation_key, correlation_key,
            concurrency_key, rate_key, CASE WHEN rate_key IS NOT NULL THEN weight END
        )
        ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
        RETURNING instances.id INTO id;
        duplicate := id IS NULL;
        IF duplicate THEN
            SELECT holder.id INTO id FROM durable.instances AS holder WHERE holder.correlation_guard = correlation_key;
        END IF;
        EXIT WHEN id IS NOT NULL;
    END LOOP;
    IF id IS NULL THEN
        RAISE EXCEPTION 'at each of 10 tries somebody else took correlation key % and freed it again', correlation_key
            USING ERRCODE = '40001';
    END IF;
    IF NOT duplicate AND eligible <= now_is THEN
        INSERT INTO durable.ready (lane_id, priority, eligible_at, instance_id, seq)
        VALUES (lane, priority, eligible, id, 0);
    ELSIF NOT duplicate THEN
        INSERT INTO durable.scheduled (lane_id, priority, eligible_at, instance_id, seq)
        VALUES (lane, priority, eligible, id, 0);
    END IF;
END
$function$;
