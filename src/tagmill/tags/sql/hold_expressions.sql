-- Keeps expressions from being collected until the transaction ends.
SELECT id FROM expression WHERE id = ANY(%(expressions)s) ORDER BY id FOR KEY SHARE
