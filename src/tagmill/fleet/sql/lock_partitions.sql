-- Locks the partitions in the order of their ids: two transactions never wait for each other. With the
-- lock held, `rev` is the last one committed and the next transaction's will be higher, so that rev
-- order is commit order.
SELECT id, rev, capacity, next_slot, node_count, cluster_id
FROM partition
WHERE id = ANY(%(partitions)s)
ORDER BY id
FOR NO KEY UPDATE
