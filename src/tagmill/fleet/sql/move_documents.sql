UPDATE document SET node_id = %(new)s WHERE node_id = %(old)s
