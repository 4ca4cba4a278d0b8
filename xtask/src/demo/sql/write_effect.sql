-- Writes one effect and answers its number; alone in its transaction, as a call to another system would be.
INSERT INTO effects (instance_id, position, attempt, crashes, failed, step, worker)
VALUES ($1::bigint, $2::integer, $3::integer, $4::integer, $5::boolean, $6::text, $7::text)
RETURNING id
