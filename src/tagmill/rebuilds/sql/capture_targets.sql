-- What a rebuild must reach: each expression in each partition, as of the partition's rev now. A forced
-- rebuild of a partition that has never changed (rev 0) is reached by any match. Relies on: the fleet is
-- held, so that no partition is deleted meanwhile.
INSERT INTO rebuild_target (rebuild_id, expression_id, partition_id, rev)
SELECT %(rebuild)s, e.id, p.id, p.rev
FROM unnest(%(expressions)s::bigint[]) AS e (id)
CROSS JOIN partition p
