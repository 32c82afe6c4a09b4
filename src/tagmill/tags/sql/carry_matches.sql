-- Stores members with bits for nodes that moved in. What a match says of nodes up to its rev stays true:
-- these nodes are newer. A match that is missing is made as of rev -1, at which it says nothing of any
-- node: it is still to be evaluated, is not complete for any tag, and is no base of a delta.
-- Relies on: the partitions and the stored matches are locked.
INSERT INTO match (expression_id, partition_id, rev, members, evaluated_at)
SELECT expression_id, partition_id, -1, members, to_timestamp(0)
FROM unnest(%(expressions)s::bigint[], %(partitions)s::bigint[], %(members)s::bytea[])
    AS new (expression_id, partition_id, members)
ON CONFLICT (expression_id, partition_id) DO UPDATE SET members = excluded.members
