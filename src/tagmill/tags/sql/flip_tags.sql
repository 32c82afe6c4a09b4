-- Relies on: the tags are locked and their pending expressions complete (complete_tags.sql).
UPDATE tag
SET expression_id = pending_expression_id, pending_expression_id = NULL
WHERE id = ANY(%(tags)s) AND pending_expression_id IS NOT NULL
