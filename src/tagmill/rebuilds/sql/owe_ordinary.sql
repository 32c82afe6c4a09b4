-- What previews took since `began`, and `beside` seconds, is owed to ordinary work, `share` times over.
UPDATE worker
SET ordinary_until = greatest(
    ordinary_until, now() + %(share)s * (now() - %(began)s + make_interval(secs => %(beside)s))
)
WHERE id = %(worker)s
