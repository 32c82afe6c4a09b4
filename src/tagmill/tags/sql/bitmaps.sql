-- Of the next partitions, of one cluster or of all: their slots, those of live nodes with the hostname given,
-- and the nodes of each tag given, in the order of the tags; null where there are none. Published matches,
-- or for a tag without, what is assigned.
SELECT p.id, p.next_slot, named.slots,
       ARRAY(
           -- Each by its key: joins would read all matches of the partition.
           SELECT CASE WHEN tag.expression_id IS NOT NULL
                       THEN (SELECT members FROM match m
                             WHERE m.expression_id = tag.expression_id AND m.partition_id = p.id)
                       ELSE (SELECT members FROM assignment a
                             WHERE a.tag_id = tag.id AND a.partition_id = p.id)
                  END
           FROM unnest(%(tags)s::bigint[]) WITH ORDINALITY AS wanted (id, place)
           LEFT JOIN tag ON tag.id = wanted.id
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
