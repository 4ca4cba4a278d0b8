-- Removes a limit: the row stays, with a new version, so that all nodes notice. The table is locked, as for set_limit.
-- Answers nothing when it was not there.
-- Index: the primary key of limits.
UPDATE durable.limits
SET removed = true, version = (SELECT max(version) + 1 FROM durable.limits)
WHERE kind = $1::text::durable.limit_kind AND name = $2::text AND NOT removed
RETURNING version
