-- A forced rebuild: every match of the expressions becomes stale; readers keep the members, and
-- `kept_rev` the rev that they are true at. Locks in the order in which completions do.
WITH held AS MATERIALIZED (
    SELECT m.expression_id, m.partition_id
    FROM match m
    WHERE m.expression_id = ANY(%(expressions)s) AND m.rev >= 0
    ORDER BY m.partition_id, m.expression_id
    FOR NO KEY UPDATE
)
UPDATE match
SET kept_rev = match.rev, rev = -1
FROM held
WHERE match.expression_id = held.expression_id AND match.partition_id = held.partition_id
