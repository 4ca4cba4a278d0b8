-- Creates the history of migrations. `installation` tells one installed schema from every other.
CREATE TABLE IF NOT EXISTS durable.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    breaking boolean NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    installation uuid NOT NULL DEFAULT gen_random_uuid()
)
