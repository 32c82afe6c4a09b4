-- The targets are the partitions' revs now: what is uploaded later does not delay the preview.
INSERT INTO preview (uuid, requested_by_id, client, expression_id, compare_to_id, targets, expires_at)
SELECT gen_random_uuid(), %(user)s, %(client)s, %(expression)s, %(compare_to)s,
       coalesce(jsonb_object_agg(id, rev), '{}'), now() + make_interval(secs => 60 * %(minutes)s)
FROM partition
RETURNING id
