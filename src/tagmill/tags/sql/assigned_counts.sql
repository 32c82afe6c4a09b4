-- Nodes of manual tags. Relies on: the bits of deleted nodes are cleared with the node.
SELECT tag_id, sum(bit_count(members))
FROM assignment
WHERE tag_id = ANY(%(tags)s)
GROUP BY tag_id
