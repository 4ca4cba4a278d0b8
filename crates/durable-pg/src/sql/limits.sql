-- All limits, and the version of the newest change; at least one row. The table is small, and read whole.
SELECT common.newest, each.*
FROM (SELECT coalesce(max(version), 0) AS newest FROM durable.limits) AS common
LEFT JOIN (
    SELECT kind::text AS kind, name, capacity, allowed, period_us, shards, version
    FROM durable.limits
    WHERE NOT removed
) AS each ON true
