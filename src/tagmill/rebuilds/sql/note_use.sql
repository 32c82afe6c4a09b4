-- Keeps `used_at` of the expressions that a tag names near now, so that one that was published for days is
-- still kept for a while after it is replaced. Noted six times in the hours that it is kept for.
UPDATE expression
SET used_at = now()
FROM (
    SELECT e.id
    FROM expression e
    WHERE e.used_at < now() - make_interval(secs => 600 * %(hours)s)
      AND (EXISTS (SELECT FROM tag WHERE tag.expression_id = e.id)
           OR EXISTS (SELECT FROM tag WHERE tag.pending_expression_id = e.id))
    ORDER BY e.id
    FOR NO KEY UPDATE OF e SKIP LOCKED
) named
WHERE expression.id = named.id
