-- Reads which migrations were applied, and what tells this installation from every other.
SELECT
    migration.version,
    migration.name,
    migration.checksum,
    migration.breaking,
    migration.installation::text || '/' || database.oid::text AS installation
FROM durable.migrations AS migration
CROSS JOIN pg_database AS database
WHERE database.datname = current_database()
ORDER BY migration.version
