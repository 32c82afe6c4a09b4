-- Relies on: the nodes' partitions are locked; `rev` is the one that this transaction raised to.
UPDATE node
SET hostname = new.hostname, kind = new.kind, rev = new.rev, digest = new.digest, updated_at = now()
FROM unnest(
    %(ids)s::bigint[], %(hostnames)s::text[], %(kinds)s::text[], %(revs)s::bigint[],
    %(digests)s::bytea[]
) AS new (id, hostname, kind, rev, digest)
WHERE node.id = new.id
