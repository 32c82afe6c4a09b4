-- Deletes some changes of assignments that are older than they are kept. An index finds where old ones are.
DELETE FROM assignment_change
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM assignment_change WHERE at < now() - make_interval(days => %(days)s) LIMIT %(most)s
))
