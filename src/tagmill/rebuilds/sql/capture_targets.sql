-- What a rebuild must reach: each expression in each partition, as of the partition's rev now. A forced
-- rebuild of a partition that has never changed (rev 0) is reached by any match. A cluster that is being
-- deleted is waited for here (partitions come before jobs), and none is deleted from here on.
INSERT INTO rebuild_target (rebuild_id, expression_id, partition_id, rev)
SELECT %(rebuild)s, e.id, p.id, p.rev
FROM unnest(%(expressions)s::bigint[]) AS e (id)
CROSS JOIN (SELECT id, rev FROM partition ORDER BY id FOR KEY SHARE) p
