-- Takes a member off the list, unless it has written its row again since, with another version: a process that connects
-- anew may do so before its last connection has ended.
-- Index: the primary key of members.
DELETE FROM durable.members WHERE id = $1::bigint AND version = $2::bigint
