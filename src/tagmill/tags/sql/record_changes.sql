-- The audit trail. Append only.
INSERT INTO match_change (expression_id, partition_id, from_rev, to_rev, added, removed)
SELECT *
FROM unnest(
    %(expressions)s::bigint[], %(partitions)s::bigint[], %(from_revs)s::bigint[],
    %(to_revs)s::bigint[], %(added)s::bytea[], %(removed)s::bytea[]
)
