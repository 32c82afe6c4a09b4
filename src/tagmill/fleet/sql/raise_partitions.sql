-- Relies on: the partitions are locked (lock_partitions.sql), and `rev` is one above what was read then.
UPDATE partition
SET rev = new.rev, next_slot = new.next_slot, node_count = new.node_count
FROM unnest(%(ids)s::bigint[], %(revs)s::bigint[], %(next_slots)s::int[], %(node_counts)s::int[])
    AS new (id, rev, next_slot, node_count)
WHERE partition.id = new.id
