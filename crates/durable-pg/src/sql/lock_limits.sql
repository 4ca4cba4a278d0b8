-- No two changes of limits at once, so that their versions rise in the order of their commits. Readers go on.
LOCK TABLE durable.limits IN SHARE ROW EXCLUSIVE MODE
