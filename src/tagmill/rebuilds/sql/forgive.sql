-- Failed attempts are forgotten when every partition has a fresh match, or one that is younger than the
-- last failure: the partition where it failed is among these.
-- Relies on: a failure leaves the match of its partition stale, and as old as it was.
WITH held AS MATERIALIZED (
    SELECT id FROM expression WHERE attempts > 0 AND failed_at IS NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE expression e
SET attempts = 0, failed_by = '{}'
FROM held
WHERE e.id = held.id
  AND e.attempts > 0
  AND e.failed_at IS NULL
  AND NOT EXISTS (
      SELECT
      FROM partition p
      LEFT JOIN match m ON m.expression_id = e.id AND m.partition_id = p.id
      WHERE m.rev IS DISTINCT FROM p.rev
        AND (m.evaluated_at IS NULL OR e.attempted_at IS NULL OR m.evaluated_at <= e.attempted_at)
  )
