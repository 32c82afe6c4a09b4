-- name: any_live
-- Whether anything is to be evaluated. Relies on: nothing; what becomes live later defers its own work.
SELECT EXISTS (SELECT FROM live_expression)


-- name: apply_matches
-- Stores matches as they are from now on; without a rev: settled. Relies on: the caller holds the locks of
-- the partitions and of the stored matches, and has compared revs under them: a match is replaced only by a
-- higher rev, whoever sends it.
-- Run with `sql.run_binary`.
INSERT INTO match (expression_id, partition_id, rev, members, evaluated_at)
SELECT expression_id, partition_id, rev, members, now()
FROM unnest(
    %(expressions)s::bigint[], %(partitions)s::bigint[], %(revs)s::bigint[], %(members)b::bytea[]
) AS new (expression_id, partition_id, rev, members)
ON CONFLICT (expression_id, partition_id) DO UPDATE
SET rev = excluded.rev, kept_rev = NULL, members = excluded.members, evaluated_at = now()


-- name: carried
-- For nodes that move from one (partition, slot) to another, the published expressions that hold on them:
-- (expression, new partition, new slot). Relies on: the partitions are locked, as for
-- everybody who writes members.
SELECT m.expression_id, place.new_partition, place.new_slot
FROM unnest(
    %(old_partitions)s::bigint[], %(old_slots)s::int[], %(new_partitions)s::bigint[], %(new_slots)s::int[]
) AS place (old_partition, old_slot, new_partition, new_slot)
JOIN match m ON m.partition_id = place.old_partition
WHERE EXISTS (SELECT FROM tag WHERE tag.expression_id = m.expression_id)
  AND CASE WHEN place.old_slot < 8 * octet_length(m.members)
           THEN get_bit(m.members, place.old_slot) = 1
           ELSE false END
ORDER BY 1, 2, 3


-- name: carry_matches
-- Stores members with bits for nodes that moved in. What a match says of nodes up to its rev stays true:
-- these nodes are newer. A match that is missing is made as of rev -1, at which it says nothing of any
-- node: it is still to be evaluated, is not complete for any tag, and is no base of a delta.
-- Relies on: the partitions and the stored matches are locked.
-- Run with `sql.run_binary`.
INSERT INTO match (expression_id, partition_id, rev, members, evaluated_at)
SELECT expression_id, partition_id, -1, members, to_timestamp(0)
FROM unnest(%(expressions)s::bigint[], %(partitions)s::bigint[], %(members)b::bytea[])
    AS new (expression_id, partition_id, members)
ON CONFLICT (expression_id, partition_id) DO UPDATE SET members = excluded.members


-- name: hold_expressions
-- Keeps expressions from being collected until the transaction ends.
-- Relies on: the collector skips what is locked.
SELECT id FROM expression WHERE id = ANY(%(expressions)s::bigint[]) ORDER BY id FOR KEY SHARE


-- name: definitions
-- What expressions say: (id, text, namespaces as JSON).
-- Relies on: they are immutable.
SELECT id, text, namespaces::text FROM expression WHERE id = ANY(%(expressions)s::bigint[])


-- name: live
-- What is evaluated: (id, digest). Relies on: nothing; what becomes live later defers its own work.
SELECT e.id, e.digest
FROM live_expression live
JOIN expression e ON e.id = live.id
ORDER BY e.id


-- name: live_version
-- A digest of the ids and digests that `live` gives, in its order.
SELECT version FROM live_version


-- name: lock_matches
-- Locks stored matches, always in the same order, and returns them as they are then, with the revs that they
-- count as: those of the expressions given, and where `settled_rev` may move (`advancing`), all that follow it.
-- To lock a row of the view locks the match and its partition. Relies on: the caller has locked the
-- partitions, so that only the matches can be waited for, and the server looks at them again after it.
SELECT expression_id, partition_id, rev, true_at, members, is_settled
FROM effective_match
WHERE partition_id = ANY(%(partitions)s::bigint[])
  AND (expression_id = ANY(%(expressions)s::bigint[])
       OR partition_id = ANY(%(advancing)s::bigint[]) AND is_settled)
ORDER BY partition_id, expression_id
FOR NO KEY UPDATE


-- name: stored_members
-- What verdicts are compared with: for each partition the expressions of its settled matches, eight bytes each,
-- and of each the bytes of its members from `first` on, one after the other (some bytes in place of 64 kB); then
-- the expressions, own revs and members of those that are true at its base by a rev of their own; with `live`
-- of others that are live, too. Each row has the version of what is live now, and without `live` the incarnation of
-- the database (null: not noted yet). Each partition is looked at by itself: joined, all matches would be read where
-- a plan is kept. Run with `sql.bound`.
-- Relies on: the partitions are locked, and neither their revs nor `settled_rev` raised yet.
SELECT given.id, (SELECT version FROM live_version),
       CASE WHEN NOT %(live)s::bool THEN (SELECT uuid::text FROM current_incarnation) END,
       stored.*
FROM unnest(%(partitions)s::bigint[], %(bases)s::bigint[], %(firsts)s::int[], %(sizes)s::int[])
    AS given (id, base, first, size)
CROSS JOIN LATERAL (
    SELECT string_agg(int8send(m.expression_id), '' ORDER BY m.expression_id) FILTER (WHERE m.rev IS NULL),
           string_agg(CASE WHEN octet_length(m.members) >= given.first + given.size
                           THEN substring(m.members FROM given.first + 1 FOR given.size)
                           ELSE substring(m.members || decode(repeat('00', given.first + given.size), 'hex')
                                          FROM given.first + 1 FOR given.size)
                      END, '' ORDER BY m.expression_id) FILTER (WHERE m.rev IS NULL),
           array_agg(m.expression_id) FILTER (WHERE m.rev IS NOT NULL),
           array_agg(m.rev) FILTER (WHERE m.rev IS NOT NULL),
           array_agg(m.members) FILTER (WHERE m.rev IS NOT NULL)
    FROM match m
    WHERE m.partition_id = given.id
      AND (m.rev IS NULL OR m.rev = given.base
           OR %(live)s::bool
              AND EXISTS (SELECT FROM live_expression live WHERE live.id = m.expression_id))
) stored


-- name: whole_members
-- The members of these matches, in the order in which everybody locks them. Run with `sql.bound`.
-- Relies on: as `stored_members`.
SELECT m.partition_id, m.expression_id, m.members
FROM unnest(%(partitions)s::bigint[], %(expressions)s::bigint[]) AS given (partition_id, expression_id)
JOIN match m ON m.partition_id = given.partition_id AND m.expression_id = given.expression_id
ORDER BY 1, 2


-- name: flip_members
-- Stores other members of matches, which stay settled or true at the rev that they have. Relies on: the
-- partitions are locked; the nodes whose bits change are newer than that rev, or it is the settled_rev that the
-- partition gets in this transaction.
-- Run with `sql.run_binary`.
UPDATE match
SET members = new.members, evaluated_at = now()
FROM unnest(%(expressions)s::bigint[], %(partitions)s::bigint[], %(members)b::bytea[])
    AS new (expression_id, partition_id, members)
WHERE match.partition_id = new.partition_id AND match.expression_id = new.expression_id


-- name: move_settled
-- Moves what settled matches are true at. Relies on: the partitions are locked, and every settled match is
-- true at the new rev.
UPDATE partition
SET settled_rev = new.rev, settled_at = now()
FROM unnest(%(partitions)s::bigint[], %(revs)s::bigint[]) AS new (id, rev)
WHERE partition.id = new.id


-- name: record_changes
-- The audit trail. Append only.
-- Relies on: the matches are locked, so that the changes of one follow each other.
-- Run with `sql.run_binary`.
INSERT INTO match_change (expression_id, partition_id, from_rev, to_rev, added, removed)
SELECT *
FROM unnest(
    %(expressions)s::bigint[], %(partitions)s::bigint[], %(from_revs)s::bigint[],
    %(to_revs)s::bigint[], %(added)b::bytea[], %(removed)b::bytea[]
)


-- name: stale
-- What waits for evaluation in the partitions given: (partition, expressions, the rev of their stored matches or
-- null where it is no base, whether somebody waits for them in a preview, whether a rebuild of them was forced). A
-- row for all that is alike: mostly there is one of a partition, however many tags there are.
-- Relies on: a missing match is stale; a forced rebuild keeps the rev that members are true at.
WITH live AS MATERIALIZED (SELECT id, is_preview FROM live_expression)
SELECT p.id, waiting.*
FROM partition p
CROSS JOIN LATERAL (
    SELECT array_agg(live.id ORDER BY live.id) AS expressions, CASE WHEN m.rev >= 0 THEN m.rev END AS base, live.is_preview,
           coalesce(m.rev < 0 AND m.true_at >= 0, false) AS is_forced
    FROM live
    LEFT JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = p.id
    WHERE m.rev IS DISTINCT FROM p.rev
    GROUP BY base, live.is_preview, is_forced
) waiting
WHERE p.id = ANY(%(partitions)s::bigint[])
ORDER BY p.id, waiting.expressions


-- name: any_stale_in
-- Whether some live expression has no fresh match in one of the partitions given. Relies on: a missing match is
-- stale.
SELECT EXISTS (
    SELECT
    FROM partition p
    CROSS JOIN live_expression live
    LEFT JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = p.id
    WHERE p.id = ANY(%(partitions)s::bigint[]) AND m.rev IS DISTINCT FROM p.rev
)


-- name: stale_for
-- Partitions where one of the expressions given has no fresh match. Relies on: a missing match is stale.
SELECT p.id
FROM partition p
WHERE EXISTS (
    SELECT
    FROM unnest(%(expressions)s::bigint[]) AS e (id)
    LEFT JOIN effective_match m ON m.expression_id = e.id AND m.partition_id = p.id
    WHERE m.rev IS DISTINCT FROM p.rev
)
ORDER BY p.id


-- name: stale_partitions
-- Partitions where some live expression has no fresh match. Relies on: a missing match is stale.
SELECT p.id
FROM partition p
WHERE EXISTS (
    SELECT
    FROM live_expression live
    LEFT JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = p.id
    WHERE m.rev IS DISTINCT FROM p.rev
)
ORDER BY p.id


-- name: touch_expression
-- Get or create, safe against a race and against the collector: the row is locked until the tag that is
-- to refer to it is stored.
INSERT INTO expression (text, namespaces, digest)
VALUES (%(text)s, %(namespaces)s, %(digest)s)
ON CONFLICT (digest) DO UPDATE SET used_at = now()
RETURNING *


-- name: partition_staleness
-- For each partition given: how many live expressions have no match at its rev. Relies on: a missing
-- match is stale.
SELECT p.id, count(live.id)
FROM partition p
CROSS JOIN live_expression live
LEFT JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = p.id
WHERE p.id = ANY(%(partitions)s) AND m.rev IS DISTINCT FROM p.rev
GROUP BY p.id


-- name: stale_matches
-- Matches that wait for evaluation: (expression, cluster, how many). Relies on: a missing match is stale.
SELECT live.id, p.cluster_id, count(*)
FROM live_expression live
CROSS JOIN partition p
LEFT JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = p.id
WHERE m.rev IS DISTINCT FROM p.rev
GROUP BY live.id, p.cluster_id


-- name: current_set
-- The version of what tags name now, and whether it is stored. Relies on: nothing; a version that is another
-- by the time that it is used names what it named.
SELECT tagged.version, EXISTS (SELECT FROM expression_set kept WHERE kept.version = tagged.version)
FROM tagged_set tagged


-- name: store_set
-- Stores what tags name now under its version, and returns both. Relies on: whoever deletes sets does nothing
-- else in the same transaction.
INSERT INTO expression_set (version, ids)
SELECT version, ids FROM tagged_set
ON CONFLICT (version) DO UPDATE SET used_at = now()
RETURNING version, ids


-- name: stored_sets
-- The stored ones of these versions. Relies on: a set of a version never changes.
SELECT version, ids FROM expression_set WHERE version = ANY(%(versions)s::text[])


-- name: set_definitions
-- The definitions of a stored set in its order: (how many there should be, id, text, namespaces as JSON).
-- Relies on: expressions are immutable; one that was collected since is missing.
SELECT cardinality(kept.ids), e.id, e.text, e.namespaces::text
FROM expression_set kept
JOIN expression e ON e.id = ANY(kept.ids)
WHERE kept.version = %(version)s
ORDER BY e.id


-- name: use_current_set
-- Notes that what tags name now is in use. Relies on: nothing.
UPDATE expression_set SET used_at = now() WHERE version = (SELECT version FROM tagged_set)


-- name: delete_sets
-- Deletes sets that were superseded a while ago. Relies on: the current one was noted before.
DELETE FROM expression_set WHERE used_at < now() - make_interval(mins => %(minutes)s)
