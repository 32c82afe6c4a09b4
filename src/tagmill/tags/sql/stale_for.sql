-- Partitions where one of the expressions given has no fresh match. Relies on: a missing match is stale.
SELECT p.id
FROM partition p
WHERE EXISTS (
    SELECT
    FROM unnest(%(expressions)s::bigint[]) AS e (id)
    LEFT JOIN match m ON m.expression_id = e.id AND m.partition_id = p.id
    WHERE m.rev IS DISTINCT FROM p.rev
)
ORDER BY p.id
