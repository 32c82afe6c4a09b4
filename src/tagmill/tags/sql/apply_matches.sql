-- Stores results by compare-and-set: a match is replaced only by a higher rev, whoever sends it.
-- Relies on: nothing; the callers' locks only make the outcome known in advance.
INSERT INTO match (expression_id, partition_id, rev, members, evaluated_at)
SELECT expression_id, partition_id, rev, members, now()
FROM unnest(
    %(expressions)s::bigint[], %(partitions)s::bigint[], %(revs)s::bigint[], %(members)s::bytea[]
) AS new (expression_id, partition_id, rev, members)
ON CONFLICT (expression_id, partition_id) DO UPDATE
SET rev = excluded.rev, kept_rev = NULL, members = excluded.members, evaluated_at = now()
WHERE match.rev < excluded.rev
