-- Of each partition, of one cluster or of all: its slots and live nodes, its members under the preview's expression (null: not evaluated yet), and those of
-- the tag that it is compared with, published or assigned by hand; and the slots of nodes that were deleted
-- after the older of both evaluations, which may still have a bit.
-- Relies on: a tombstone's rev is above the rev of every match that may hold its bit. What members are true
-- at is `kept_rev` during a forced rebuild (`rev` is -1 then), else `rev`. Bits of manual tags go with the
-- node.
SELECT p.id, p.cluster_id, p.next_slot, p.node_count, m.members, coalesce(published.members, assigned.members),
       CASE WHEN older.true_at < p.rev THEN (
           SELECT array_agg(n.slot)
           FROM node n
           WHERE n.partition_id = p.id AND n.rev > older.true_at AND n.deleted_at IS NOT NULL
       ) END
FROM partition p
LEFT JOIN match m ON m.partition_id = p.id AND m.expression_id = %(expression)s
LEFT JOIN tag ON tag.id = %(compare_to)s
LEFT JOIN match published ON published.partition_id = p.id
                         AND published.expression_id = tag.expression_id
LEFT JOIN assignment assigned ON assigned.partition_id = p.id AND assigned.tag_id = tag.id
                             AND tag.expression_id IS NULL
CROSS JOIN LATERAL (
    SELECT least(coalesce(m.kept_rev, m.rev), coalesce(published.kept_rev, published.rev)) AS true_at
) older
WHERE %(cluster)s::bigint IS NULL OR p.cluster_id = %(cluster)s
ORDER BY p.id
