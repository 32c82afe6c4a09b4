-- Takes back what a forced rebuild made stale and nobody has evaluated yet, unless another forced rebuild
-- that still runs wants it too.
WITH held AS MATERIALIZED (
    SELECT m.expression_id, m.partition_id
    FROM match m
    JOIN rebuild_target t ON t.expression_id = m.expression_id AND t.partition_id = m.partition_id
    WHERE t.rebuild_id = %(rebuild)s AND m.rev = -1 AND m.kept_rev IS NOT NULL
      AND NOT EXISTS (
          SELECT
          FROM rebuild_target other
          JOIN rebuild r ON r.id = other.rebuild_id
          WHERE other.expression_id = m.expression_id AND other.partition_id = m.partition_id
            AND r.id <> %(rebuild)s AND r.state = 'running' AND r.reason = 'forced'
      )
    ORDER BY m.partition_id, m.expression_id
    FOR NO KEY UPDATE OF m
)
UPDATE match
SET rev = match.kept_rev, kept_rev = NULL
FROM held
WHERE match.expression_id = held.expression_id AND match.partition_id = held.partition_id
