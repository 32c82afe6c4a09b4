-- Of the previews given: (uuid, partitions, those that have not reached their target, when it was first
-- seen complete, the failure, or null). A partition that is gone has nothing to reach; a forced rebuild
-- takes no match away.
SELECT v.uuid, count(p.id),
       count(p.id) FILTER (WHERE coalesce(m.kept_rev, m.rev, -1) < target.value::bigint),
       v.completed_at, CASE WHEN e.failed_at IS NOT NULL THEN e.failure END
FROM preview v
JOIN expression e ON e.id = v.expression_id
LEFT JOIN LATERAL jsonb_each_text(v.targets) AS target ON true
LEFT JOIN partition p ON p.id = target.key::bigint
LEFT JOIN match m ON m.partition_id = p.id AND m.expression_id = v.expression_id
WHERE v.uuid = ANY(%(previews)s)
GROUP BY v.id, e.id
