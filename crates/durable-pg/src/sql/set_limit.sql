-- Sets what a limit allows (rule LIM-8), and answers the new version. All changes go one after the other: the table is
-- locked first, in a statement of its own, so that versions rise in the order of commits.
-- Index: the primary key of limits.
INSERT INTO durable.limits (kind, name, capacity, allowed, period_us, shards, version, removed)
SELECT
    $1::text::durable.limit_kind, $2::text, $3::integer, $4::integer, $5::bigint, $6::smallint,
    (SELECT coalesce(max(version), 0) + 1 FROM durable.limits),
    false
ON CONFLICT (kind, name) DO UPDATE
SET capacity = excluded.capacity,
    allowed = excluded.allowed,
    period_us = excluded.period_us,
    shards = excluded.shards,
    version = excluded.version,
    removed = false
RETURNING version
