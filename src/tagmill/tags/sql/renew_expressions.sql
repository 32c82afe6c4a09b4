-- An expression is live until its last preview ends. Relies on: the expressions are locked by all who add
-- or remove a preview of them.
UPDATE expression e
SET preview_until = (SELECT max(v.expires_at) FROM preview v WHERE v.expression_id = e.id),
    used_at = now()
WHERE e.id = ANY(%(expressions)s)
