-- The database's time, in microseconds since 1970: the one clock of the demonstration.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
