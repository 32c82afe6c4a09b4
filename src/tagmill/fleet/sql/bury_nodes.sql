-- Makes tombstones. Relies on: the nodes' partitions are locked; `rev` is the raised one. The slot stays
-- taken for ever.
UPDATE node
SET deleted_at = now(), updated_at = now(), rev = new.rev, digest = ''
FROM unnest(%(ids)s::bigint[], %(revs)s::bigint[]) AS new (id, rev)
WHERE node.id = new.id
