-- A rebuild's targets: all and reached ones; and its partitions' nodes: all, and those of partitions in
-- which every target is reached.
SELECT coalesce(sum(targets), 0), coalesce(sum(reached), 0), coalesce(sum(node_count), 0),
       coalesce(sum(node_count) FILTER (WHERE reached = targets), 0)
FROM (
    SELECT p.id, p.node_count, count(*) AS targets, count(*) FILTER (WHERE m.rev >= t.rev) AS reached
    FROM rebuild_target t
    JOIN partition p ON p.id = t.partition_id
    LEFT JOIN match m ON m.expression_id = t.expression_id AND m.partition_id = t.partition_id
    WHERE t.rebuild_id = %(rebuild)s
    GROUP BY p.id
) partitions
