-- Live nodes by system_id, with the digests of their documents (two arrays, in the same order).
SELECT n.id, n.system_id, n.hostname, n.kind, n.partition_id, n.slot, n.rev, p.cluster_id,
       array(SELECT d.probe FROM document d WHERE d.node_id = n.id ORDER BY d.probe),
       array(SELECT d.digest FROM document d WHERE d.node_id = n.id ORDER BY d.probe)
FROM node n
JOIN partition p ON p.id = n.partition_id
WHERE n.system_id = ANY(%(system_ids)s) AND n.deleted_at IS NULL
