-- The states and counts of any number of tags at once: (null, null, partitions there are); for each
-- expression given (expression, null, its fresh matches, the last evaluation, the live nodes it matches, why
-- it failed or null); for each tag given that is assigned by hand (null, tag, null, null, its nodes, null).
-- Matches are read once. Nodes that were deleted after an evaluation still have their bit in it: those bits
-- are taken off by one mask for each partition and each rev that members are true at, however many
-- expressions there are, and only where a partition has changed since.
-- Relies on: a tombstone's rev is above the rev of every match that may hold its bit. What members are true
-- at is `kept_rev` during a forced rebuild (`rev` is -1 then), else `rev`. Bits of assignments go with the
-- node. In the text of a bytea, bit n of `get_bit` is the character n # 7.
WITH found AS (
    SELECT m.expression_id, m.rev = p.rev AS is_fresh, m.evaluated_at,
           bit_count(m.members)::int AS nodes, octet_length(m.members) AS bytes,
           CASE WHEN coalesce(m.kept_rev, m.rev) < p.rev THEN p.id END AS behind,
           CASE WHEN coalesce(m.kept_rev, m.rev) < p.rev THEN coalesce(m.kept_rev, m.rev) END AS true_at
    FROM match m
    JOIN partition p ON p.id = m.partition_id
    WHERE m.expression_id IN (SELECT unnest(%(expressions)s::bigint[]))
),
sums AS MATERIALIZED (
    SELECT expression_id, behind, true_at, bytes, count(*) FILTER (WHERE is_fresh) AS fresh,
           max(evaluated_at) AS evaluated_at, sum(nodes) AS nodes
    FROM found
    GROUP BY GROUPING SETS ((expression_id), (behind, true_at, bytes))
),
deleted AS MATERIALIZED (
    SELECT s.behind AS partition_id, s.true_at, s.bytes, tombstones.slots
    FROM (
        SELECT *, repeat('0', 8 * bytes)::varbit AS no_slots FROM sums WHERE behind > 0 AND bytes > 0
        -- Made once for each, not for every tombstone.
        OFFSET 0
    ) s
    CROSS JOIN LATERAL (
        SELECT bit_or(set_bit(s.no_slots, n.slot # 7, 1)) AS slots
        FROM node n
        WHERE n.partition_id = s.behind AND n.rev > s.true_at
          AND n.deleted_at IS NOT NULL AND n.slot < 8 * s.bytes
    ) tombstones
    WHERE tombstones.slots IS NOT NULL
),
gone AS (
    SELECT held.expression_id, sum(held.nodes) AS nodes
    FROM deleted d
    CROSS JOIN LATERAL (
        SELECT m.expression_id,
               bit_count(('x' || encode(m.members, 'hex'))::varbit & d.slots)::int AS nodes
        FROM match m
        WHERE m.partition_id = d.partition_id AND m.rev IN (d.true_at, -1)
          AND coalesce(m.kept_rev, m.rev) = d.true_at AND octet_length(m.members) = d.bytes
          AND m.expression_id = ANY(%(expressions)s)
        -- Not joined in another order: few partitions have changed.
        OFFSET 0
    ) held
    GROUP BY held.expression_id
)
SELECT NULL::bigint, NULL::bigint, count(*), NULL::timestamptz, 0::bigint, NULL::text FROM partition
UNION ALL
SELECT e.id, NULL, coalesce(sums.fresh, 0), sums.evaluated_at,
       coalesce(sums.nodes, 0) - coalesce(gone.nodes, 0),
       CASE WHEN e.failed_at IS NOT NULL THEN e.failure END
FROM expression e
LEFT JOIN sums ON sums.expression_id = e.id
LEFT JOIN gone ON gone.expression_id = e.id
WHERE e.id = ANY(%(expressions)s)
UNION ALL
SELECT NULL, tag_id, NULL, NULL, sum(bit_count(members)::int), NULL
FROM assignment
WHERE tag_id = ANY(%(tags)s)
GROUP BY tag_id
