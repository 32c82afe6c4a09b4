DELETE FROM document WHERE node_id = ANY(%(node_ids)s)
