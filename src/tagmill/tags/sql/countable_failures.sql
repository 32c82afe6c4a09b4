-- Those of the failures that their leases were for: (expression, partition, the rev that was leased). Relies
-- on: a lease names what was stale at its rev, and what was stale then and has no result since is so still;
-- the partitions are locked, and the results that came with the failures are applied.
SELECT DISTINCT e.id
FROM unnest(%(expressions)s::numeric[], %(partitions)s::bigint[], %(revs)s::bigint[])
    AS failure (expression_id, partition_id, rev)
JOIN expression e ON e.id = failure.expression_id
LEFT JOIN match m ON m.expression_id = e.id AND m.partition_id = failure.partition_id
WHERE e.failed_at IS NULL
  AND (m.rev IS NULL OR m.rev < failure.rev)
  AND (
      EXISTS (SELECT FROM tag WHERE tag.expression_id = e.id)
      OR EXISTS (SELECT FROM tag WHERE tag.pending_expression_id = e.id)
      OR e.preview_until > now()
  )
ORDER BY 1
