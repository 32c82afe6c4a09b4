-- Of each partition where an expression holds somewhere: (partition, capacity, members, slots of nodes that
-- were deleted after the evaluation, which may still have a bit). Relies on: a tombstone's rev is above the
-- rev of every match that may hold its bit; the partitions are locked.
SELECT p.id, p.capacity, m.members,
       array(SELECT n.slot
             FROM node n
             WHERE n.partition_id = p.id AND n.rev > coalesce(m.kept_rev, m.rev)
               AND n.deleted_at IS NOT NULL)
FROM match m
JOIN partition p ON p.id = m.partition_id
WHERE m.expression_id = %(expression)s
ORDER BY p.id
