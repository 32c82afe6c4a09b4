-- Every match of the partition becomes stale, and no base for anything: nobody knows at which rev its
-- members were true, and so a forced rebuild that is cancelled does not take it back either. Locks in the
-- order in which completions do. Relies on: the partition is locked.
WITH held AS MATERIALIZED (
    SELECT m.expression_id, m.partition_id
    FROM match m
    WHERE m.partition_id = %(partition)s AND (m.rev >= 0 OR m.kept_rev IS NOT NULL)
    ORDER BY m.partition_id, m.expression_id
    FOR NO KEY UPDATE
)
UPDATE match
SET rev = -1, kept_rev = NULL
FROM held
WHERE match.expression_id = held.expression_id AND match.partition_id = held.partition_id
RETURNING match.expression_id
