-- Records that a migration was applied, in the transaction that applied it.
INSERT INTO durable.migrations (version, name, checksum, breaking)
VALUES ($1::integer, $2::text, $3::text, $4::boolean)
