-- Partitions where some live expression has no fresh match. Relies on the same as stale.sql.
WITH live AS (
    SELECT e.id
    FROM expression e
    WHERE e.failed_at IS NULL
      AND (
          EXISTS (SELECT FROM tag t WHERE t.expression_id = e.id)
          OR EXISTS (SELECT FROM tag t WHERE t.pending_expression_id = e.id)
          OR e.preview_until > now()
      )
)
SELECT p.id
FROM partition p
WHERE EXISTS (
    SELECT
    FROM live
    LEFT JOIN match m ON m.expression_id = live.id AND m.partition_id = p.id
    WHERE m.rev IS DISTINCT FROM p.rev
)
ORDER BY p.id
