-- The worker that holds the most orders now, and how many. An order is held while its fencing number is the
-- claimed one; a claim of which nothing is left may still be there.
SELECT worker.name, count(*) AS held
FROM workers AS worker
JOIN claims AS claim ON claim.worker_id = worker.id
CROSS JOIN LATERAL unnest(claim.instance_ids, claim.seqs) AS entry (id, seq)
JOIN instances AS instance ON instance.id = entry.id AND instance.seq = entry.seq
WHERE instance.finished_at IS NULL
GROUP BY worker.name
ORDER BY held DESC
LIMIT 1
