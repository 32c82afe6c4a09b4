-- Of the previews given: (uuid, partitions, those that have not reached their target, when it was
-- complete, the failure, or null). A partition that is gone has nothing to reach; a forced rebuild
-- takes no match away. One preview after the other: together, all matches there are would be read.
SELECT v.uuid, reached.partitions, reached.pending, v.completed_at,
       CASE WHEN e.failed_at IS NOT NULL THEN e.failure END
FROM preview v
JOIN expression e ON e.id = v.expression_id
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions,
           count(*) FILTER (
               WHERE coalesce(m.kept_rev, m.rev, -1) < target.value::bigint
           ) AS pending
    FROM jsonb_each_text(v.targets) AS target
    JOIN partition p ON p.id = target.key::bigint
    LEFT JOIN match m ON m.expression_id = v.expression_id AND m.partition_id = p.id
) reached
WHERE v.uuid = ANY(%(previews)s)
