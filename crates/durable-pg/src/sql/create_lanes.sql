-- Creates lanes that do not exist yet. Two nodes that create the same lanes insert them in one order, so that
-- they cannot deadlock; the later one finds what the earlier one committed.
INSERT INTO durable.lanes (queue, machine, machine_version)
SELECT DISTINCT input.queue, input.machine, input.machine_version
FROM unnest($1::text[], $2::text[], $3::integer[]) AS input (queue, machine, machine_version)
ORDER BY input.queue, input.machine, input.machine_version
ON CONFLICT (queue, machine, machine_version) DO NOTHING
