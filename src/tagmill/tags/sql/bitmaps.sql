-- Of the next partitions, of one cluster or of all: their slots, those of live nodes with the hostname given,
-- and the nodes of each tag given, in the order of the tags; null where there are none. Published matches,
-- or for a tag without, what is assigned. Each bitmap is read by its key: a join would read all of its
-- partition.
WITH wanted AS MATERIALIZED (
    SELECT given.place, tag.id, tag.expression_id
    FROM unnest(%(tags)s::bigint[]) WITH ORDINALITY AS given (id, place)
    LEFT JOIN tag ON tag.id = given.id
)
SELECT p.id, p.next_slot, named.slots,
       ARRAY(
           SELECT CASE WHEN wanted.expression_id IS NOT NULL
                       THEN (SELECT members FROM match m
                             WHERE m.expression_id = wanted.expression_id AND m.partition_id = p.id)
                       ELSE (SELECT members FROM assignment a
                             WHERE a.tag_id = wanted.id AND a.partition_id = p.id)
                  END
           FROM wanted
           ORDER BY wanted.place
       )
FROM partition p
LEFT JOIN (
    SELECT n.partition_id, array_agg(n.slot) AS slots
    FROM node n
    WHERE n.hostname = %(hostname)s AND n.deleted_at IS NULL
    GROUP BY n.partition_id
) named ON named.partition_id = p.id
WHERE p.id >= %(first)s AND (%(cluster)s::bigint IS NULL OR p.cluster_id = %(cluster)s)
ORDER BY p.id
LIMIT %(most)s
