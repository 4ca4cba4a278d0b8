-- Pauses a key for so long, or ends its pause ($3 is NULL); who waits for it is looked at when it ends.
-- Index: the primary key of limit_keys.
INSERT INTO durable.limit_keys AS limit_key (kind, key, paused_until)
SELECT $1::text::durable.limit_key_kind, $2::text, clock_timestamp() + $3::bigint * interval '1 microsecond'
ON CONFLICT (kind, key) DO UPDATE
SET paused_until = excluded.paused_until,
    look_at = CASE WHEN limit_key.waiting > 0 THEN coalesce(excluded.paused_until, clock_timestamp()) END
