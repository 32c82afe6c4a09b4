-- Locks stored matches, always in the same order.
SELECT m.expression_id, m.partition_id, m.rev, coalesce(m.kept_rev, m.rev), m.members
FROM match m
WHERE m.partition_id = ANY(%(partitions)s) AND m.expression_id = ANY(%(expressions)s)
ORDER BY m.partition_id, m.expression_id
FOR NO KEY UPDATE
