-- Deletes some changes of the trail that are older than they are kept. An index finds where old ones are.
DELETE FROM match_change
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM match_change WHERE at < now() - make_interval(days => %(days)s) LIMIT %(most)s
))
