-- The system_ids of the nodes, live or deleted, at these (partition, slot): a slot is never used again.
SELECT n.partition_id, n.slot, n.system_id
FROM unnest(%(partitions)s::bigint[], %(slots)s::int[]) AS place (partition_id, slot)
JOIN node n ON n.partition_id = place.partition_id AND n.slot = place.slot
