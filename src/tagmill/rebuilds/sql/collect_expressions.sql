-- Relies on: the expressions are locked, and nothing but the audit trail refers to them. The trail of an
-- expression that no tag ever had explains nothing: it goes, too.
WITH targets AS (
    DELETE FROM rebuild_target WHERE expression_id = ANY(%(expressions)s)
),
matches AS (
    DELETE FROM match WHERE expression_id = ANY(%(expressions)s)
),
changes AS (
    DELETE FROM match_change c
    USING expression e
    WHERE e.id = ANY(%(expressions)s) AND e.named_at IS NULL AND c.expression_id = e.id
)
DELETE FROM expression e
WHERE e.id = ANY(%(expressions)s)
  AND (e.named_at IS NULL OR NOT EXISTS (SELECT FROM match_change c WHERE c.expression_id = e.id))
