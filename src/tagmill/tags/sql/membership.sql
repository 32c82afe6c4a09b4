-- The incarnation of the database (null: not noted yet), and one text that changes whenever the node list
-- of the tag could read differently within it.
SELECT (SELECT uuid FROM current_incarnation), coalesce(string_agg(
           concat_ws(':', p.id, p.rev, m.rev, extract(epoch FROM m.evaluated_at), md5(a.members)),
           ',' ORDER BY p.id
       ), '')
FROM partition p
LEFT JOIN match m ON m.partition_id = p.id AND m.expression_id = %(expression)s
LEFT JOIN assignment a ON a.partition_id = p.id AND a.tag_id = %(tag)s
