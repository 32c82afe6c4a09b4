-- What previews, or changes, took since `began`, and `beside` seconds, is owed to everything else
-- (`ordinary` times over), or to rebuilds (`rebuilds` times over).
UPDATE worker
SET ordinary_until = greatest(ordinary_until, now() + %(ordinary)s * took.seconds),
    rebuilds_until = greatest(rebuilds_until, now() + %(rebuilds)s * took.seconds)
FROM (SELECT now() - %(began)s + make_interval(secs => %(beside)s) AS seconds) took
WHERE id = %(worker)s
