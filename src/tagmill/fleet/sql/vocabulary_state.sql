-- What the fleet's vocabulary depends on: it changes whenever a partition's is stored, grows or goes.
-- Revs only grow, and partitions' ids are never used again, within an incarnation of the database (null:
-- not noted yet).
SELECT (SELECT uuid FROM current_incarnation),
       count(v.partition_id), coalesce(sum(v.rev), 0)::bigint, coalesce(max(v.partition_id), 0),
       count(*) FILTER (WHERE v.partition_id IS NULL AND p.node_count > 0),
       count(*) FILTER (WHERE v.rev < p.rev),
       coalesce(sum(v.documents), 0)::bigint
FROM partition p
LEFT JOIN vocabulary v ON v.partition_id = p.id AND v.version = %(version)s
