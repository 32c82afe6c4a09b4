-- Of the rebuilds given, those with nothing left to wait for, and whether an expression of theirs failed.
-- A target waits while its match is below its rev; targets of expressions that failed, or that nothing
-- refers to any more, wait for nothing. The rebuild of a definition also waits until it is published, which
-- a partition made meanwhile may delay. Relies on: the rebuilds' rows are locked, so that two last
-- completions see each other; what is complete has been published before.
SELECT r.id,
       EXISTS (
           SELECT
           FROM rebuild_tag rt
           JOIN tag ON tag.id = rt.tag_id
           JOIN expression e ON e.id IN (tag.expression_id, tag.pending_expression_id)
           WHERE rt.rebuild_id = r.id AND e.failed_at IS NOT NULL
             AND EXISTS (SELECT FROM rebuild_target t
                         WHERE t.rebuild_id = r.id AND t.expression_id = e.id)
       )
FROM rebuild r
WHERE r.id = ANY(%(rebuilds)s)
  AND NOT EXISTS (
      SELECT
      FROM rebuild_target t
      JOIN expression e ON e.id = t.expression_id AND e.failed_at IS NULL
      LEFT JOIN match m ON m.expression_id = t.expression_id AND m.partition_id = t.partition_id
      WHERE t.rebuild_id = r.id
        AND (m.rev IS NULL OR m.rev < t.rev)
        AND EXISTS (
            SELECT FROM tag
            WHERE tag.expression_id = t.expression_id OR tag.pending_expression_id = t.expression_id
        )
  )
  AND NOT EXISTS (
      SELECT
      FROM rebuild_tag rt
      JOIN tag ON tag.id = rt.tag_id
      JOIN expression e ON e.id = tag.pending_expression_id AND e.failed_at IS NULL
      WHERE rt.rebuild_id = r.id AND r.reason <> 'forced'
  )
