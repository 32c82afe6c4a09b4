-- Expressions that nothing has named for `hours`. An uncommitted tag that names one holds its row: it is
-- left for the next time.
SELECT e.id
FROM expression e
WHERE e.used_at < now() - make_interval(secs => 3600 * %(hours)s)
  AND (e.preview_until IS NULL OR e.preview_until <= now())
  AND NOT EXISTS (SELECT FROM preview WHERE preview.expression_id = e.id)
  AND NOT EXISTS (SELECT FROM tag WHERE tag.expression_id = e.id)
  AND NOT EXISTS (SELECT FROM tag WHERE tag.pending_expression_id = e.id)
  AND (EXISTS (SELECT FROM match m WHERE m.expression_id = e.id)
       OR e.named_at IS NULL
       OR NOT EXISTS (SELECT FROM match_change c WHERE c.expression_id = e.id))
ORDER BY e.id
FOR UPDATE OF e SKIP LOCKED
