-- One text that changes whenever the node list of the tag could read differently.
SELECT coalesce(string_agg(
           concat_ws(':', p.id, p.rev, m.rev, extract(epoch FROM m.evaluated_at), md5(a.members)),
           ',' ORDER BY p.id
       ), '')
FROM partition p
LEFT JOIN match m ON m.partition_id = p.id AND m.expression_id = %(expression)s
LEFT JOIN assignment a ON a.partition_id = p.id AND a.tag_id = %(tag)s
