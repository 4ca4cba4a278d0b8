INSERT INTO floor.instances (machine, machine_version, step, state, queue, priority, eligible_at)
SELECT 'noop', 1, 'perform', '{"order": 1}', 'default', 100, clock_timestamp()
FROM generate_series(1, $1::bigint)
