-- Brings instances back that wait for these keys: durable.bring_back, in one round trip (rule LIM-7).
SELECT place, instances, queues, look_us
FROM durable.bring_back($1::text[]::durable.limit_key_kind[], $2::text[], $3::integer[], $4::bigint[])
