-- Of each expression given: partitions, stale ones, the last evaluation, and the live nodes it matches.
-- Members that were deleted after the evaluation still have their bit: they are taken off.
-- Relies on: a tombstone's rev is above the rev of every match that may hold its bit; `rev` is -1 during a
-- forced rebuild, and then every tombstone is looked at.
SELECT e.id,
       count(p.id),
       count(p.id) FILTER (WHERE m.rev IS DISTINCT FROM p.rev),
       max(m.evaluated_at),
       coalesce(sum(bit_count(m.members)), 0) - coalesce(sum(gone.nodes), 0)
FROM unnest(%(expressions)s::bigint[]) AS e (id)
CROSS JOIN partition p
LEFT JOIN match m ON m.expression_id = e.id AND m.partition_id = p.id
LEFT JOIN LATERAL (
    SELECT count(*) AS nodes
    FROM node n
    WHERE m.rev <> p.rev
      AND n.partition_id = p.id AND n.rev > m.rev AND n.deleted_at IS NOT NULL
      AND CASE WHEN n.slot < 8 * octet_length(m.members)
               THEN get_bit(m.members, n.slot) = 1
               ELSE false END
) gone ON true
GROUP BY e.id
