-- Of nodes that move from one (partition, slot) to another: (expression, new partition, new slot) of the
-- published expressions that show them where they were. Relies on: the partitions are locked, as for
-- everybody who writes members.
SELECT m.expression_id, place.new_partition, place.new_slot
FROM unnest(
    %(old_partitions)s::bigint[], %(old_slots)s::int[], %(new_partitions)s::bigint[], %(new_slots)s::int[]
) AS place (old_partition, old_slot, new_partition, new_slot)
JOIN match m ON m.partition_id = place.old_partition
WHERE EXISTS (SELECT FROM tag WHERE tag.expression_id = m.expression_id)
  AND CASE WHEN place.old_slot < 8 * octet_length(m.members)
           THEN get_bit(m.members, place.old_slot) = 1
           ELSE false END
ORDER BY 1, 2, 3
