-- Relies on: the partitions are locked and the slots are theirs to give (slot >= next_slot).
INSERT INTO node (system_id, hostname, kind, partition_id, slot, rev, digest)
SELECT system_id, hostname, kind, partition_id, slot, rev, digest
FROM unnest(
    %(system_ids)s::text[], %(hostnames)s::text[], %(kinds)s::text[], %(partitions)s::bigint[],
    %(slots)s::int[], %(revs)s::bigint[], %(digests)s::bytea[]
) AS new (system_id, hostname, kind, partition_id, slot, rev, digest)
RETURNING system_id, id
