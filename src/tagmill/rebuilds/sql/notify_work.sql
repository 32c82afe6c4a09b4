-- Wakes waiting workers when this transaction commits. A payload is limited to 8000 bytes: a long list of
-- partitions is left out, and then any may have work.
SELECT pg_notify(
    'tagmill_work',
    CASE WHEN octet_length(partitions::text) < 7000
         THEN json_build_object('cluster', cluster_id, 'partitions', partitions)
         ELSE json_build_object('cluster', cluster_id) END::text
)
FROM (
    SELECT cluster_id, json_agg(id ORDER BY id) AS partitions
    FROM partition
    WHERE id = ANY(%(partitions)s)
    GROUP BY cluster_id
) by_cluster
