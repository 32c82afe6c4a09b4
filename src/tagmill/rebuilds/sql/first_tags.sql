-- Of each rebuild given: how many tags it has, and the names of the first of them, in the order in which the
-- tags were made. A rebuild may have all tags there are: no more of them than are shown are looked up.
SELECT r.id,
       (SELECT count(*) FROM rebuild_tag rt WHERE rt.rebuild_id = r.id),
       ARRAY(
           SELECT (SELECT name FROM tag WHERE tag.id = rt.tag_id)
           FROM rebuild_tag rt
           WHERE rt.rebuild_id = r.id
           ORDER BY rt.tag_id
           LIMIT %(most)s
       )
FROM unnest(%(rebuilds)s::bigint[]) AS r (id)
