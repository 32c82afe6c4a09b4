-- Relies on: the expressions are locked, and nothing but the audit trail refers to them.
WITH targets AS (
    DELETE FROM rebuild_target WHERE expression_id = ANY(%(expressions)s)
),
matches AS (
    DELETE FROM match WHERE expression_id = ANY(%(expressions)s)
)
DELETE FROM expression e
WHERE e.id = ANY(%(expressions)s)
  AND NOT EXISTS (SELECT FROM match_change c WHERE c.expression_id = e.id)
