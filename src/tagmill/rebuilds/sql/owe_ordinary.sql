-- What previews took since `began` is owed to ordinary work, `share` times over.
UPDATE worker
SET ordinary_until = greatest(ordinary_until, now() + %(share)s * (now() - %(began)s))
WHERE id = %(worker)s
