-- The live nodes at these (partition, slot), in their order.
SELECT n.partition_id, n.slot, n.system_id, n.hostname, n.kind, c.name, c.uuid, n.rev, n.created_at,
       n.updated_at
FROM unnest(%(partitions)s::bigint[], %(slots)s::int[]) AS place (partition_id, slot)
JOIN node n ON n.partition_id = place.partition_id AND n.slot = place.slot
JOIN partition p ON p.id = n.partition_id
JOIN cluster c ON c.id = p.cluster_id
WHERE n.deleted_at IS NULL
ORDER BY n.partition_id, n.slot
