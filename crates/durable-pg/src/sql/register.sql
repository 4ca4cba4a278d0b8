-- Registers a worker; its lease runs from now.
INSERT INTO durable.workers (started_at, lease_until, lease, name, process, reaper, collector)
SELECT clock.now, clock.now + input.lease, input.lease, input.name, input.process, input.reaper, input.collector
FROM (SELECT clock_timestamp() AS now) AS clock
CROSS JOIN (
    SELECT $1::text AS name, $2::bigint * interval '1 microsecond' AS lease, $3::text::jsonb AS process,
        $4::boolean AS reaper, $5::boolean AS collector
) AS input
RETURNING id
