-- The partitions of a cluster that have slots left, in the order they are filled. Relies on: the
-- cluster's row is locked, so that nobody else makes one meanwhile.
SELECT id, capacity - next_slot
FROM partition
WHERE cluster_id = %(cluster)s AND next_slot < capacity
ORDER BY number
