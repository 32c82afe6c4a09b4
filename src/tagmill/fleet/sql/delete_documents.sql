DELETE FROM document
USING unnest(%(node_ids)s::bigint[], %(probes)s::text[]) AS gone (node_id, probe)
WHERE document.node_id = gone.node_id AND document.probe = gone.probe
