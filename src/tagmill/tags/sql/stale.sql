-- What waits for evaluation in the partitions given: (partition, expression, the stored rev or
-- null, whether somebody waits for it in a preview).
-- Relies on: a missing match is stale; an expression counts while a tag or a live preview names it and
-- it has not failed.
WITH live AS (
    SELECT e.id,
           e.preview_until > now() IS TRUE
           AND EXISTS (SELECT FROM preview v WHERE v.expression_id = e.id AND v.completed_at IS NULL)
               AS is_preview
    FROM expression e
    WHERE e.failed_at IS NULL
      AND (
          EXISTS (SELECT FROM tag t WHERE t.expression_id = e.id)
          OR EXISTS (SELECT FROM tag t WHERE t.pending_expression_id = e.id)
          OR e.preview_until > now()
      )
)
SELECT p.id, live.id, m.rev, live.is_preview
FROM partition p
CROSS JOIN live
-- The partitions again: the planner does not carry them over from p, and would read all matches.
LEFT JOIN match m ON m.expression_id = live.id AND m.partition_id = p.id
                 AND m.partition_id = ANY(%(partitions)s)
WHERE p.id = ANY(%(partitions)s) AND m.rev IS DISTINCT FROM p.rev
ORDER BY p.id, live.id
