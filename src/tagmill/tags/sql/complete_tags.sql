-- Of the tags given, those whose pending expression is evaluated in every partition, except in clusters that
-- somebody asked to publish without, at least as of the revs that the latest rebuild of it asked for. Relies on: the tags' rows are locked (two last completions
-- that commit at the same time see each other, since the second waits for the first), and this statement
-- began after the lock was had.
SELECT t.id
FROM tag t
WHERE t.id = ANY(%(tags)s)
  AND t.pending_expression_id IS NOT NULL
  AND NOT EXISTS (
      SELECT
      FROM partition p
      LEFT JOIN match m ON m.expression_id = t.pending_expression_id AND m.partition_id = p.id
      LEFT JOIN rebuild_target target
             ON target.expression_id = t.pending_expression_id
            AND target.partition_id = p.id
            AND target.rebuild_id = (
                SELECT max(r.id)
                FROM rebuild r
                JOIN rebuild_tag rt ON rt.rebuild_id = r.id AND rt.tag_id = t.id
                WHERE r.state = 'running'
            )
      WHERE (m.rev IS NULL OR m.rev < coalesce(target.rev, 0))
        AND p.cluster_id <> ALL (%(without)s::bigint[])
  )
