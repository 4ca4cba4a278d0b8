-- Makes a new secret, and removes those that nobody uses any more: members change over within two minutes of a newer
-- one being made (rule POKE-6). Two renewals at once make two.
-- Index: none needed, the table holds few rows.
WITH made AS (
    INSERT INTO durable.member_secrets DEFAULT VALUES
)
DELETE FROM durable.member_secrets
WHERE number < (
    SELECT max(number) FROM durable.member_secrets WHERE made_at < clock_timestamp() - interval '1 hour'
)
