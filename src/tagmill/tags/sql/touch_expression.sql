-- Get or create, safe against a race and against the collector: the row is locked until the tag that is
-- to refer to it is stored.
INSERT INTO expression (text, namespaces, digest)
VALUES (%(text)s, %(namespaces)s, %(digest)s)
ON CONFLICT (digest) DO UPDATE SET used_at = now()
RETURNING *
