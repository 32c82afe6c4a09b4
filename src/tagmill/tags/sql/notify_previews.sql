-- Wakes those who wait for a preview of one of the expressions given, if there are any.
SELECT pg_notify('tagmill_preview', '')
WHERE EXISTS (
    SELECT FROM preview v WHERE v.expression_id = ANY(%(expressions)s) AND v.completed_at IS NULL
)
