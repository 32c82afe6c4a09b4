-- name: bitmaps
-- For the next partitions, of some clusters or of all: their slots, the slots of live nodes with the hostname
-- given, and the nodes of each tag given, in the order of the tags; null where there are none. The nodes of a
-- tag are its published match, or its assignments where it has no published expression. Each bitmap is read
-- by its key: a join would read all of its partition.
-- Relies on: whoever shows nodes asks which of them live (`nodes_at`): bits of deleted ones may be set.
WITH wanted AS MATERIALIZED (
    SELECT given.place, tag.id, tag.expression_id
    FROM unnest(%(tags)s::bigint[]) WITH ORDINALITY AS given (id, place)
    LEFT JOIN tag ON tag.id = given.id
)
SELECT p.id, p.next_slot, named.slots,
       ARRAY(
           SELECT CASE WHEN wanted.expression_id IS NOT NULL
                       THEN (SELECT members FROM match m
                             WHERE m.expression_id = wanted.expression_id AND m.partition_id = p.id)
                       ELSE (SELECT members FROM assignment a
                             WHERE a.tag_id = wanted.id AND a.partition_id = p.id)
                  END
           FROM wanted
           ORDER BY wanted.place
       )
FROM partition p
LEFT JOIN (
    SELECT n.partition_id, array_agg(n.slot) AS slots
    FROM node n
    WHERE n.hostname = %(hostname)s AND n.deleted_at IS NULL
    GROUP BY n.partition_id
) named ON named.partition_id = p.id
WHERE p.id >= %(first)s AND (%(clusters)s::bigint[] IS NULL OR p.cluster_id = ANY(%(clusters)s))
ORDER BY p.id
LIMIT %(most)s


-- name: capture_targets
-- What a rebuild must reach: each expression in each partition, as of the partition's rev now. A forced
-- rebuild of a partition that has never changed (rev 0) is reached by any match. Relies on: the fleet is
-- held, so that no partition is deleted meanwhile.
INSERT INTO rebuild_target (rebuild_id, expression_id, partition_id, rev)
SELECT %(rebuild)s, e.id, p.id, p.rev
FROM unnest(%(expressions)s::bigint[]) AS e (id)
CROSS JOIN partition p


-- name: complete_tags
-- The tags given whose pending expression is evaluated in every partition, at least as of the revs that its
-- latest rebuild asked for, except in clusters that somebody asked to publish without. Relies on: the tags'
-- rows are locked (two last completions that commit at the same time see each other, since the second waits
-- for the first), and this statement began after the lock was had.
SELECT t.id
FROM tag t
WHERE t.id = ANY(%(tags)s)
  AND t.pending_expression_id IS NOT NULL
  AND NOT EXISTS (
      SELECT
      FROM partition p
      LEFT JOIN effective_match m ON m.expression_id = t.pending_expression_id AND m.partition_id = p.id
      LEFT JOIN rebuild_target target
             ON target.expression_id = t.pending_expression_id
            AND target.partition_id = p.id
            AND target.rebuild_id = (
                SELECT max(r.id)
                FROM rebuild r
                JOIN rebuild_tag rt ON rt.rebuild_id = r.id AND rt.tag_id = t.id
                WHERE r.state = 'running'
            )
      WHERE (m.rev IS NULL OR m.rev < coalesce(target.rev, 0))
        AND p.cluster_id <> ALL (%(without)s::bigint[])
  )


-- name: count_failures
-- Counts one more failure of each expression, by one worker under leases that began at `leased_at`, and
-- fails those that have had enough of them: of `most` different workers, or `most_alone` whoever it was.
-- A worker's next failure counts under a lease that began after its last one: what had two partitions at
-- once when it broke has broken once. Relies on: the expressions are locked.
WITH counted AS (
    UPDATE expression e
    SET attempts = least(e.attempts + 1, 32767), attempted_at = statement_timestamp(),
        failed_by = e.failed_by || %(worker)s::bigint
    FROM unnest(%(expressions)s::bigint[], %(leased_at)s::timestamptz[]) AS new (id, leased_at)
    WHERE e.id = new.id
      AND NOT (%(worker)s = ANY(e.failed_by) AND new.leased_at <= e.attempted_at)
    RETURNING e.id, e.attempts,
              (SELECT count(DISTINCT worker) FROM unnest(e.failed_by) AS by (worker)) AS workers
)
SELECT id FROM counted WHERE workers >= %(most)s OR attempts >= %(most_alone)s


-- name: countable_failures
-- The failures given that their leases were for: (expression, partition, the rev that was leased). Relies
-- on: a lease names what was stale at its rev, and what was stale then and has no result since is so still;
-- the partitions are locked, and the results that came with the failures are applied.
SELECT DISTINCT e.id
FROM unnest(%(expressions)s::numeric[], %(partitions)s::bigint[], %(revs)s::bigint[])
    AS failure (expression_id, partition_id, rev)
JOIN live_expression e ON e.id = failure.expression_id
LEFT JOIN effective_match m ON m.expression_id = e.id AND m.partition_id = failure.partition_id
WHERE m.rev IS NULL OR m.rev < failure.rev
ORDER BY 1


-- name: delete_assignment_changes
-- Deletes some changes of assignments that are older than they are kept. An index finds where old ones are.
-- Relies on: one process at a time deletes what is old.
DELETE FROM assignment_change
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM assignment_change WHERE at < now() - make_interval(days => %(days)s) LIMIT %(most)s
))


-- name: delete_changes
-- Deletes some changes of the trail that are older than they are kept. An index finds where old ones are.
-- Relies on: one process at a time deletes what is old.
DELETE FROM match_change
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM match_change WHERE at < now() - make_interval(days => %(days)s) LIMIT %(most)s
))


-- name: delete_targets
-- Deletes some targets of rebuilds that are over and whose totals are stored: nobody reads them any more.
-- Relies on: one process at a time deletes what is old.
DELETE FROM rebuild_target
WHERE ctid = ANY (ARRAY(
    SELECT t.ctid
    FROM rebuild r
    JOIN rebuild_target t ON t.rebuild_id = r.id
    WHERE r.totals IS NOT NULL
    LIMIT %(most)s
))


-- name: expired_previews
-- The previews that have expired, with their expressions locked, except where somebody is making or
-- cancelling a preview of the same expression.
-- Relies on: previews of an expression are made and deleted under its lock.
SELECT v.id, v.expression_id
FROM expression e
JOIN preview v ON v.expression_id = e.id
WHERE v.expires_at <= now()
ORDER BY e.id
FOR NO KEY UPDATE OF e SKIP LOCKED


-- name: first_tags
-- For each rebuild given: how many tags it has, and the names of the first of them, in the order in which the
-- tags were made. A rebuild may have all tags there are: no more of them than are shown are looked up.
-- Relies on: nothing.
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


-- name: flip_tags
-- Relies on: the tags are locked and their pending expressions complete (complete_tags.sql).
UPDATE tag
SET expression_id = pending_expression_id, pending_expression_id = NULL
WHERE id = ANY(%(tags)s) AND pending_expression_id IS NOT NULL


-- name: force_matches
-- A forced rebuild: every match of the expressions becomes stale; readers keep the members, and
-- `kept_rev` the rev that they are true at. Locks in the order in which completions do. Relies on: all
-- partitions are locked by a statement before, so that `settled_rev` stays.
WITH held AS MATERIALIZED (
    SELECT m.expression_id, m.partition_id, coalesce(m.rev, p.settled_rev) AS rev
    FROM match m
    JOIN partition p ON p.id = m.partition_id
    WHERE m.expression_id = ANY(%(expressions)s) AND (m.rev IS NULL OR m.rev >= 0)
    ORDER BY m.partition_id, m.expression_id
    FOR NO KEY UPDATE OF m
)
UPDATE match
SET kept_rev = held.rev, rev = -1
FROM held
WHERE match.expression_id = held.expression_id AND match.partition_id = held.partition_id


-- name: hold_tag
-- Keeps the tag that a preview is compared with from being deleted until the transaction ends; it may change.
-- Relies on: a tag is deleted under a lock that excludes this one.
SELECT id FROM tag WHERE name = %(name)s FOR KEY SHARE


-- name: insert_preview
-- The targets are the partitions' revs now: what is uploaded later does not delay the preview.
-- Relies on: the fleet is held, so that no partition goes meanwhile.
INSERT INTO preview (uuid, requested_by_id, client, expression_id, compare_to_id, targets, expires_at)
SELECT gen_random_uuid(), %(user)s, %(client)s, %(expression)s, %(compare_to)s,
       coalesce(jsonb_object_agg(id, rev), '{}'), now() + make_interval(secs => 60 * %(minutes)s)
FROM partition
RETURNING id


-- name: live_workers
-- For each cluster: (id, name, live workers whose token names it).
-- Relies on: a worker that lives has sent a heartbeat within `seconds`.
SELECT c.id, c.name,
       (SELECT count(*)
        FROM worker
        JOIN worker_token token ON token.id = worker.token_id AND token.revoked_at IS NULL
        WHERE worker.last_heartbeat > now() - make_interval(secs => %(seconds)s)
          AND (token.all_clusters
               OR EXISTS (SELECT FROM worker_token_cluster may
                          WHERE may.workertoken_id = token.id AND may.cluster_id = c.id)))
FROM cluster c
ORDER BY c.name


-- name: lock_all_partitions
-- In the order in which everybody locks them.
SELECT id FROM partition ORDER BY id FOR NO KEY UPDATE


-- name: lock_previews_of
-- The previews of one user are made one after the other, whichever process makes them.
-- Relies on: nothing; two users with the same hash wait for each other without need.
SELECT pg_advisory_xact_lock(hashtextextended('preview', %(user)s))


-- name: lock_expressions
-- Those whose previews change, and the one with this digest, always in the same order.
SELECT id
FROM expression
WHERE id = ANY(%(expressions)s) OR digest = %(digest)s
ORDER BY id
FOR NO KEY UPDATE


-- name: membership
-- The incarnation of the database (null: not noted yet), and one text that changes whenever the node list
-- of the tag could read differently within it.
-- Relies on: members change with the match's rev or its time, or with the partition's rev when a node moves in.
SELECT (SELECT uuid FROM current_incarnation), coalesce(string_agg(
           concat_ws(':', p.id, p.rev, m.rev, extract(epoch FROM m.evaluated_at), md5(a.members)),
           ',' ORDER BY p.id
       ), '')
FROM partition p
LEFT JOIN effective_match m ON m.partition_id = p.id AND m.expression_id = %(expression)s
LEFT JOIN assignment a ON a.partition_id = p.id AND a.tag_id = %(tag)s


-- name: nodes_before
-- The live nodes, of some clusters or of all, whose system_id is below one (null: below none), the last first; as
-- `nodes_at` shows them. An index has them in this order.
SELECT n.partition_id, n.slot, n.system_id, n.hostname, n.kind, c.name, c.uuid, n.rev, n.created_at,
       n.updated_at
FROM node n
JOIN partition p ON p.id = n.partition_id
JOIN cluster c ON c.id = p.cluster_id
WHERE n.deleted_at IS NULL AND (%(after)s::text IS NULL OR n.system_id < %(after)s)
  AND (%(clusters)s::bigint[] IS NULL OR p.cluster_id = ANY(%(clusters)s))
ORDER BY n.system_id DESC
LIMIT %(most)s


-- name: nodes_beyond
-- As `nodes_before`, above one, the first first.
SELECT n.partition_id, n.slot, n.system_id, n.hostname, n.kind, c.name, c.uuid, n.rev, n.created_at,
       n.updated_at
FROM node n
JOIN partition p ON p.id = n.partition_id
JOIN cluster c ON c.id = p.cluster_id
WHERE n.deleted_at IS NULL AND (%(after)s::text IS NULL OR n.system_id > %(after)s)
  AND (%(clusters)s::bigint[] IS NULL OR p.cluster_id = ANY(%(clusters)s))
ORDER BY n.system_id
LIMIT %(most)s


-- name: nodes_revision
-- Everything that a list of nodes may show, as texts that change with it: the incarnation of the database
-- (null: not noted yet), how many of the tags given there are, the partitions, the clusters, and the nodes of
-- the tags. Run with `sql.bound`.
-- Relies on: a node changes with its partition's rev; members change with the match's rev or its time; within
-- an incarnation none of them comes back.
SELECT (SELECT uuid::text FROM current_incarnation),
       (SELECT count(*) FROM tag WHERE name = ANY(%(tags)s::text[])),
       (SELECT md5(string_agg(concat_ws(':', p.id, p.rev), ',' ORDER BY p.id)) FROM partition p),
       (SELECT md5(string_agg(md5(concat_ws(':', c.id, c.uuid, c.name)), ',' ORDER BY c.id)) FROM cluster c),
       (SELECT md5(string_agg(concat_ws(':', t.id, t.name, coalesce(t.expression_id, 0), p.id, m.rev,
                                        extract(epoch FROM m.evaluated_at), md5(a.members)),
                              ',' ORDER BY t.id, p.id))
        FROM tag t
        LEFT JOIN partition p ON true
        LEFT JOIN effective_match m ON m.partition_id = p.id AND m.expression_id = t.expression_id
        LEFT JOIN assignment a ON a.partition_id = p.id AND a.tag_id = t.id
        WHERE t.name = ANY(%(tags)s::text[]))


-- name: named_places
-- For each of these lists of slots, each an array as text, of a partition: (its number from 1, the system_ids of the
-- nodes there, live or deleted, in the order of slots), also of partitions that are gone: a slot is never used again.
SELECT list.number, array_agg(n.system_id::text ORDER BY n.slot)
FROM unnest(%(partitions)s::bigint[], %(slots)s::text[]) WITH ORDINALITY AS list (partition_id, slots, number)
CROSS JOIN LATERAL (
    SELECT node.slot, node.system_id
    FROM node
    WHERE node.partition_id = list.partition_id AND node.slot = ANY(list.slots::int[])
    UNION ALL
    SELECT place.slot, past.names[place.slot + 1]
    FROM past_partition past
    CROSS JOIN unnest(list.slots::int[]) AS place (slot)
    WHERE past.id = list.partition_id AND past.names[place.slot + 1] IS NOT NULL
    -- Each by its index: a join would read all nodes for a thousand.
    OFFSET 0
) n
GROUP BY list.number


-- name: delete_past_partitions
-- Deletes the names of partitions that were gone before any change was made that is still kept.
DELETE FROM past_partition WHERE gone_at < now() - make_interval(days => %(days)s)


-- name: nodes_at
-- The live nodes at these (partition, slot), in their order. Run with `sql.bound`.
-- Relies on: a slot is never used again.
SELECT n.partition_id, n.slot, n.system_id, n.hostname, n.kind, c.name, c.uuid, n.rev, n.created_at,
       n.updated_at
FROM unnest(%(partitions)s::bigint[], %(slots)s::int[]) AS place (partition_id, slot)
JOIN node n ON n.partition_id = place.partition_id AND n.slot = place.slot
JOIN partition p ON p.id = n.partition_id
JOIN cluster c ON c.id = p.cluster_id
WHERE n.deleted_at IS NULL
ORDER BY n.partition_id, n.slot


-- name: present_members
-- For each partition where an expression holds somewhere: (partition, capacity, members, slots of nodes that
-- were deleted after the evaluation, which may still have a bit). Relies on: a tombstone's rev is above the
-- rev of every match that may hold its bit; the partitions are locked.
SELECT p.id, p.capacity, m.members,
       array(SELECT n.slot
             FROM node n
             WHERE n.partition_id = p.id AND n.rev > m.true_at
               AND n.deleted_at IS NOT NULL)
FROM effective_match m
JOIN partition p ON p.id = m.partition_id
WHERE m.expression_id = %(expression)s
ORDER BY p.id


-- name: preview_members
-- For each partition, of one cluster or of all: its slots and live nodes, its members under the preview's
-- expression (null: not evaluated yet), the members of the tag that it is compared with, published or
-- assigned by hand, and the slots of nodes that were deleted after the older of both evaluations, which may
-- still have a bit.
-- Relies on: a tombstone's rev is above what every match that may hold its bit is true at. Bits of manual
-- tags go with the node.
SELECT p.id, p.cluster_id, p.next_slot, p.node_count, m.members, coalesce(published.members, assigned.members),
       CASE WHEN older.true_at < p.rev THEN (
           SELECT array_agg(n.slot)
           FROM node n
           WHERE n.partition_id = p.id AND n.rev > older.true_at AND n.deleted_at IS NOT NULL
       ) END
FROM partition p
LEFT JOIN effective_match m ON m.partition_id = p.id AND m.expression_id = %(expression)s
LEFT JOIN tag ON tag.id = %(compare_to)s
LEFT JOIN effective_match published ON published.partition_id = p.id
                                   AND published.expression_id = tag.expression_id
LEFT JOIN assignment assigned ON assigned.partition_id = p.id AND assigned.tag_id = tag.id
                             AND tag.expression_id IS NULL
CROSS JOIN LATERAL (
    SELECT least(m.true_at, published.true_at) AS true_at
) older
WHERE %(cluster)s::bigint IS NULL OR p.cluster_id = %(cluster)s
ORDER BY p.id


-- name: preview_verdicts
-- Whether the preview's expression matches the live nodes that are named; null where it is not evaluated
-- yet. The whole partition waits for its evaluation, as the preview's counts do.
-- Relies on: a node's slot is its own for ever; a bitmap that is too short for it has no bit of it.
SELECT n.system_id, n.hostname, c.name,
       CASE WHEN m.members IS NULL THEN NULL
            WHEN n.slot < 8 * octet_length(m.members) THEN get_bit(m.members, n.slot) = 1
            ELSE false
       END
FROM node n
JOIN partition p ON p.id = n.partition_id
JOIN cluster c ON c.id = p.cluster_id
LEFT JOIN effective_match m ON m.partition_id = n.partition_id AND m.expression_id = %(expression)s
WHERE n.system_id = ANY(%(nodes)s) AND n.deleted_at IS NULL
ORDER BY n.system_id

-- name: preview_progress
-- For each preview given: (uuid, partitions, those that have not reached their target, when it was
-- complete, the failure, or null). A partition that is gone has nothing to reach; a forced rebuild
-- takes no match away. One preview after the other: together, all matches there are would be read.
SELECT v.uuid, reached.partitions, reached.pending, v.completed_at,
       CASE WHEN e.failed_at IS NOT NULL THEN e.failure END
FROM preview v
JOIN expression e ON e.id = v.expression_id
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions,
           count(*) FILTER (
               WHERE coalesce(m.true_at, -1) < target.value::bigint
           ) AS pending
    FROM jsonb_each_text(v.targets) AS target
    JOIN partition p ON p.id = target.key::bigint
    LEFT JOIN effective_match m ON m.expression_id = v.expression_id AND m.partition_id = p.id
) reached
WHERE v.uuid = ANY(%(previews)s)


-- name: progress
-- A rebuild's targets: all and reached ones; and its partitions' nodes: all, and those of partitions in
-- which every target is reached.
-- Relies on: targets stay until the rebuild's totals are stored.
SELECT coalesce(sum(targets), 0), coalesce(sum(reached), 0), coalesce(sum(node_count), 0),
       coalesce(sum(node_count) FILTER (WHERE reached = targets), 0)
FROM (
    SELECT p.id, p.node_count, count(*) AS targets, count(*) FILTER (WHERE m.rev >= t.rev) AS reached
    FROM rebuild_target t
    JOIN partition p ON p.id = t.partition_id
    LEFT JOIN effective_match m ON m.expression_id = t.expression_id AND m.partition_id = t.partition_id
    WHERE t.rebuild_id = %(rebuild)s
    GROUP BY p.id
) partitions


-- name: reached
-- The rebuilds given that have nothing left to wait for, and whether an expression of theirs failed.
-- A target waits while its match is below its rev; targets of expressions that failed, or that nothing
-- refers to any more, wait for nothing. The rebuild of a definition also waits until it is published, which
-- a partition made meanwhile may delay. Relies on: the rebuilds' rows are locked, so that two last
-- completions see each other; what is complete has been published before.
SELECT r.id,
       EXISTS (
           SELECT
           FROM rebuild_tag rt
           JOIN tag ON tag.id = rt.tag_id
           JOIN expression e ON e.id IN (tag.expression_id, tag.pending_expression_id)
           WHERE rt.rebuild_id = r.id AND e.failed_at IS NOT NULL
             AND EXISTS (SELECT FROM rebuild_target t
                         WHERE t.rebuild_id = r.id AND t.expression_id = e.id)
       )
FROM rebuild r
WHERE r.id = ANY(%(rebuilds)s)
  AND NOT EXISTS (
      SELECT
      FROM rebuild_target t
      JOIN expression e ON e.id = t.expression_id AND e.failed_at IS NULL
      WHERE t.rebuild_id = r.id
        -- One look for each target, until one is not reached: a join would read all matches there are.
        AND coalesce((SELECT m.rev
                      FROM effective_match m
                      WHERE m.expression_id = t.expression_id AND m.partition_id = t.partition_id), -2) < t.rev
        AND EXISTS (
            SELECT FROM tag
            WHERE tag.expression_id = t.expression_id OR tag.pending_expression_id = t.expression_id
        )
  )
  AND NOT EXISTS (
      SELECT
      FROM rebuild_tag rt
      JOIN tag ON tag.id = rt.tag_id
      JOIN expression e ON e.id = tag.pending_expression_id AND e.failed_at IS NULL
      WHERE rt.rebuild_id = r.id AND r.reason <> 'forced'
  )


-- name: renew_expressions
-- An expression is live until its last preview ends. Relies on: the expressions are locked by all who add
-- or remove a preview of them.
UPDATE expression e
SET preview_until = (SELECT max(v.expires_at) FROM preview v WHERE v.expression_id = e.id),
    used_at = now()
WHERE e.id = ANY(%(expressions)s)


-- name: restore_matches
-- Takes back what a forced rebuild made stale and nobody has evaluated yet, unless another forced rebuild
-- that still runs wants it too.
-- Relies on: an evaluation that was stored since has removed `kept_rev`.
WITH held AS MATERIALIZED (
    SELECT m.expression_id, m.partition_id
    FROM match m
    JOIN rebuild_target t ON t.expression_id = m.expression_id AND t.partition_id = m.partition_id
    WHERE t.rebuild_id = %(rebuild)s AND m.rev = -1 AND m.kept_rev IS NOT NULL
      AND NOT EXISTS (
          SELECT
          FROM rebuild_target other
          JOIN rebuild r ON r.id = other.rebuild_id
          WHERE other.expression_id = m.expression_id AND other.partition_id = m.partition_id
            AND r.id <> %(rebuild)s AND r.state = 'running' AND r.reason = 'forced'
      )
    ORDER BY m.partition_id, m.expression_id
    FOR NO KEY UPDATE OF m
)
UPDATE match
SET rev = match.kept_rev, kept_rev = NULL
FROM held
WHERE match.expression_id = held.expression_id AND match.partition_id = held.partition_id


-- name: sought
-- The slots of live nodes of which all of what is asked for holds, by partition: the kind; what the hostname or
-- the system_id, or the hostname alone, begins with; a text in either of them. Null, or an empty text: any. It
-- looks at every node: 100,000 take 50 ms.
SELECT n.partition_id, array_agg(n.slot)
FROM node n
WHERE n.deleted_at IS NULL
  AND (%(kind)s::text IS NULL OR n.kind = %(kind)s)
  AND (%(prefix)s = '' OR starts_with(lower(n.hostname), lower(%(prefix)s))
       OR starts_with(lower(n.system_id), lower(%(prefix)s)))
  AND (%(hostname_prefix)s = '' OR starts_with(lower(n.hostname), lower(%(hostname_prefix)s)))
  AND (%(text)s = '' OR strpos(lower(n.hostname), lower(%(text)s)) > 0
       OR strpos(lower(n.system_id), lower(%(text)s)) > 0)
GROUP BY n.partition_id


-- name: status
-- The states and counts of any number of tags at once: (null, null, partitions there are); for each
-- expression given (expression, null, its fresh matches, the last evaluation, the live nodes it matches, why
-- it failed or null); for each tag given that is assigned by hand (null, tag, null, null, its nodes, null).
-- Matches are read once. Nodes that were deleted after an evaluation still have their bit in it: those bits
-- are taken off by one mask for each partition and each rev that members are true at, however many
-- expressions there are, and only where a partition has changed since.
-- Relies on: a tombstone's rev is above what every match that may hold its bit is true at. Bits of
-- assignments go with the node. In the text of a bytea, bit n of `get_bit` is the character n # 7.
WITH found AS (
    SELECT m.expression_id, m.rev = p.rev AS is_fresh, m.evaluated_at,
           bit_count(m.members)::int AS nodes, octet_length(m.members) AS bytes,
           CASE WHEN m.true_at < p.rev THEN p.id END AS behind,
           CASE WHEN m.true_at < p.rev THEN m.true_at END AS true_at
    FROM effective_match m
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
        FROM effective_match m
        WHERE m.partition_id = d.partition_id AND m.true_at = d.true_at AND octet_length(m.members) = d.bytes
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


-- name: sizes_of_evaluated
-- By seconds, ascending: how many more nodes evaluations of the expression found, and the changes that were read, the
-- newest `most` at most. Relies on: nothing.
SELECT max(at), sum(bit_count(added) - bit_count(removed))::bigint, sum(count(*)) OVER ()::bigint
FROM (
    SELECT at, added, removed
    FROM match_change
    WHERE expression_id = %(id)s AND is_move IS NULL
    ORDER BY id DESC
    LIMIT %(most)s
) changed
GROUP BY date_trunc('second', at)
ORDER BY 1


-- name: sizes_of_assigned
-- The same of what was assigned to the tag by hand. Relies on: nothing.
SELECT max(at), sum(bit_count(added) - bit_count(removed))::bigint, sum(count(*)) OVER ()::bigint
FROM (
    SELECT at, added, removed FROM assignment_change WHERE tag_id = %(id)s ORDER BY id DESC LIMIT %(most)s
) changed
GROUP BY date_trunc('second', at)
ORDER BY 1


-- name: freshness_in
-- For the partition: how many definitions tags have, published or to be published, how many of them are not fresh
-- there, and the last evaluation of one. Relies on: a missing match is stale.
SELECT count(*), count(*) FILTER (WHERE m.rev IS DISTINCT FROM p.rev), max(m.evaluated_at)
FROM (
    SELECT expression_id AS id FROM tag WHERE expression_id IS NOT NULL
    UNION
    SELECT pending_expression_id FROM tag WHERE pending_expression_id IS NOT NULL
) e
JOIN partition p ON p.id = %(partition)s
LEFT JOIN effective_match m ON m.expression_id = e.id AND m.partition_id = p.id


-- name: tags_in
-- For each tag and each of these partitions where nodes may carry it: (partition, name of the tag, its nodes), in
-- the order of names: a tag's nodes are its published match, or its assignments where it has no published
-- expression.
-- Relies on: whoever shows nodes asks which of them live: bits of deleted ones may be set.
SELECT m.partition_id, tag.name, m.members
FROM match m
JOIN tag ON tag.expression_id = m.expression_id
WHERE m.partition_id = ANY(%(partitions)s::bigint[])
UNION ALL
SELECT a.partition_id, tag.name, a.members
FROM assignment a
JOIN tag ON tag.id = a.tag_id AND tag.expression_id IS NULL
WHERE a.partition_id = ANY(%(partitions)s::bigint[])
ORDER BY 2


-- name: tombstones
-- The slots of deleted nodes by partition, of some clusters or of all.
SELECT n.partition_id, array_agg(n.slot)
FROM node n
JOIN partition p ON p.id = n.partition_id
WHERE n.deleted_at IS NOT NULL AND (%(clusters)s::bigint[] IS NULL OR p.cluster_id = ANY(%(clusters)s))
GROUP BY n.partition_id


-- name: anybody_waits
-- Whether any tag waits to be published, any preview is under way, and any rebuild runs. Mostly none does. Relies
-- on: as `who_waits`.
SELECT EXISTS (SELECT FROM tag WHERE pending_expression_id IS NOT NULL)
       OR EXISTS (SELECT FROM preview WHERE completed_at IS NULL)
       OR EXISTS (SELECT FROM rebuild WHERE state = 'running')


-- name: who_waits
-- Whether a tag waits for one of the expressions given to be published, a preview of one of them is under way,
-- and any rebuild runs. Relies on: the results are committed, and a tag, a preview or a rebuild that begins to
-- wait looks at the matches once more when that is committed.
SELECT EXISTS (SELECT FROM tag WHERE pending_expression_id = ANY(%(expressions)s::bigint[])),
       EXISTS (SELECT FROM preview WHERE expression_id = ANY(%(concerned)s::bigint[]) AND completed_at IS NULL),
       EXISTS (SELECT FROM rebuild WHERE state = 'running')


-- name: waiting
-- What the expressions, rebuilds and previews given wait for: (kind, id, the failure of an expression or
-- null, its cluster, live workers that may answer for the cluster, partitions that wait there, those of
-- them that a worker holds, those whose job is given back with a delay, and the seconds until the first
-- of them may be leased). Nothing is said of what waits for nothing.
-- An expression waits where it has no fresh match; a rebuild where a target is not reached, or a pending
-- definition of its tags has no match yet; a preview where its rev of the request is not reached (a forced
-- rebuild takes nothing from it). An expression that failed is leased to nobody: its partitions wait for
-- no worker. Relies on: match.rev <= partition.rev; a missing match is stale.
WITH wanted (kind, id, expression_id, partition_id, rev) AS (
    SELECT 'expression', e.id, e.id, p.id, p.rev
    FROM unnest(%(expressions)s::bigint[]) AS e (id)
    CROSS JOIN partition p
    UNION ALL
    SELECT 'rebuild', t.rebuild_id, t.expression_id, t.partition_id, t.rev
    FROM rebuild_target t
    WHERE t.rebuild_id = ANY(%(rebuilds)s::bigint[])
      AND t.expression_id IN (
          SELECT expression_id FROM tag WHERE expression_id IS NOT NULL
          UNION ALL
          SELECT pending_expression_id FROM tag WHERE pending_expression_id IS NOT NULL
      )
    UNION ALL
    SELECT 'rebuild', r.id, tag.pending_expression_id, p.id, 0
    FROM rebuild r
    JOIN rebuild_tag rt ON rt.rebuild_id = r.id
    JOIN tag ON tag.id = rt.tag_id AND tag.pending_expression_id IS NOT NULL
    CROSS JOIN partition p
    WHERE r.id = ANY(%(rebuilds)s::bigint[]) AND r.reason <> 'forced'
    UNION ALL
    SELECT 'preview', v.id, v.expression_id, target.key::bigint, target.value::bigint
    FROM preview v
    CROSS JOIN LATERAL jsonb_each_text(v.targets) AS target
    WHERE v.id = ANY(%(previews)s::bigint[]) AND v.completed_at IS NULL
),
waiting AS (
    -- An expression of a rebuild may wait in a partition where another waits, too.
    SELECT DISTINCT w.kind, w.id, w.partition_id, p.cluster_id,
           CASE WHEN e.failed_at IS NOT NULL THEN e.failure END AS failure
    FROM wanted w
    JOIN expression e ON e.id = w.expression_id
    JOIN partition p ON p.id = w.partition_id
    LEFT JOIN effective_match m ON m.expression_id = w.expression_id AND m.partition_id = w.partition_id
    WHERE coalesce(CASE w.kind WHEN 'preview' THEN m.true_at ELSE m.rev END, -1) < w.rev
       OR m.rev IS NULL
),
alive AS (
    SELECT worker.token_id, token.all_clusters
    FROM worker
    JOIN worker_token token ON token.id = worker.token_id AND token.revoked_at IS NULL
    WHERE worker.last_heartbeat > now() - make_interval(secs => %(seconds)s)
),
clusters AS MATERIALIZED (
    SELECT c.id, c.name,
           (SELECT count(*) FROM alive
            WHERE alive.all_clusters
               OR EXISTS (SELECT FROM worker_token_cluster may
                          WHERE may.workertoken_id = alive.token_id AND may.cluster_id = c.id)) AS workers
    FROM cluster c
)
SELECT w.kind, w.id, w.failure, c.name, coalesce(c.workers, 0), w.partitions, w.held, w.postponed,
       coalesce(extract(epoch FROM w.until - now()), 0)
FROM (
    SELECT waiting.kind, waiting.id, failure, CASE WHEN failure IS NULL THEN waiting.cluster_id END AS cluster_id,
           count(*) AS partitions, count(lease.partition_id) AS held,
           count(job.id) AS postponed, min(job.scheduled_at) AS until
    FROM waiting
    LEFT JOIN lease ON lease.partition_id = waiting.partition_id AND lease.deadline > now()
    LEFT JOIN procrastinate_jobs job
        ON job.queueing_lock = 'partition:' || waiting.partition_id
       AND job.status = 'todo' AND job.scheduled_at > now() AND lease.partition_id IS NULL
    GROUP BY waiting.kind, waiting.id, failure, CASE WHEN failure IS NULL THEN waiting.cluster_id END
) w
LEFT JOIN clusters c ON c.id = w.cluster_id
ORDER BY w.kind, w.id, w.failure NULLS LAST, c.name
