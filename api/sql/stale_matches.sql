-- Matches that wait for evaluation: (expression, cluster, how many). Relies on: a missing match is stale;
-- an expression counts while a tag or a live preview names it and it has not failed.
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
SELECT live.id, p.cluster_id, count(*)
FROM live
CROSS JOIN partition p
LEFT JOIN match m ON m.expression_id = live.id AND m.partition_id = p.id
WHERE m.rev IS DISTINCT FROM p.rev
GROUP BY live.id, p.cluster_id
