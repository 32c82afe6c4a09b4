-- name: batch
-- One page of a partition's nodes after slot `after`, with their documents, in one statement.
-- Without `since`: live nodes that have documents. With it: every node changed after that rev, tombstones
-- and nodes without documents included. Bounded by count and by XML bytes, never below one node.
-- `found` is the number of nodes looked at: more than are returned when there is a next page.
-- Relies on: `digest` is empty exactly for nodes without documents and for tombstones; the caller has
-- read the partition's rev before, so that the page is never older than the rev it is sent with.
WITH page AS MATERIALIZED (
    SELECT n.id, n.slot, n.rev, n.deleted_at IS NOT NULL AS is_deleted,
           (SELECT coalesce(sum(d.size), 0) FROM document d WHERE d.node_id = n.id) AS bytes
    FROM node n
    WHERE n.partition_id = %(partition)s
      AND n.slot > %(after)s
      AND CASE WHEN %(since)s::bigint IS NULL THEN n.digest <> '' ELSE n.rev > %(since)s END
    ORDER BY n.slot
    LIMIT %(max_nodes)s + 1
),
counted AS (
    SELECT page.*, sum(bytes) OVER (ORDER BY slot) AS total, row_number() OVER (ORDER BY slot) AS nth,
           count(*) OVER () AS found
    FROM page
)
SELECT c.slot, c.rev, c.is_deleted, c.found, d.probe, d.xml
FROM counted c
LEFT JOIN document d ON d.node_id = c.id
WHERE c.nth = 1 OR (c.nth <= %(max_nodes)s AND c.total <= %(max_bytes)s)
ORDER BY c.slot, d.probe


-- name: incarnation
-- The uuid of the incarnation; no row where the database's history is not the one that was noted.
SELECT uuid FROM current_incarnation


-- name: lock_partitions
-- Locks the partitions in the order of their ids: two transactions never wait for each other. With the
-- lock held, `rev` is the last one committed and the next transaction's will be higher, so that rev
-- order is commit order. Run with `sql.bound`.
SELECT id, rev, capacity, next_slot, node_count, cluster_id, settled_rev
FROM partition
WHERE id = ANY(%(partitions)s::bigint[])
ORDER BY id
FOR NO KEY UPDATE


-- name: partitions_with_room
-- The partitions of a cluster that have slots left, in the order they are filled. Relies on: the
-- cluster's row is locked, so that nobody else makes one meanwhile.
SELECT id, capacity - next_slot
FROM partition
WHERE cluster_id = %(cluster)s AND next_slot < capacity
ORDER BY number


-- name: raise_partitions
-- Relies on: the partitions are locked (`lock_partitions`), `rev` is one above what was read then, and every
-- settled match is true at `settled_rev`. Run with `sql.run_binary`.
UPDATE partition
SET rev = new.rev, next_slot = new.next_slot, node_count = new.node_count,
    settled_at = CASE WHEN partition.settled_rev = new.settled_rev THEN partition.settled_at ELSE now() END,
    settled_rev = new.settled_rev
FROM unnest(
    %(ids)s::bigint[], %(revs)s::bigint[], %(next_slots)s::int[], %(node_counts)s::int[],
    %(settled_revs)s::bigint[]
) AS new (id, rev, next_slot, node_count, settled_rev)
WHERE partition.id = new.id


-- name: renew_incarnation
-- A new uuid for the history that the database is in, unless somebody else made it meanwhile: the row is
-- looked at again under its lock. `declared`: in any case.
INSERT INTO incarnation (id, uuid, history)
SELECT 1, gen_random_uuid(), database_history.name
FROM database_history
ON CONFLICT (id) DO UPDATE
SET uuid = excluded.uuid, history = excluded.history, since = now()
WHERE %(declared)s OR incarnation.history <> excluded.history
RETURNING uuid


-- name: revision
-- The incarnation (null: not noted yet) and the partition's rev (null: no such partition), in one look.
SELECT (SELECT uuid::text FROM current_incarnation), (SELECT rev FROM partition WHERE id = %(partition)s)


-- name: vocabulary_state
-- What the fleet's vocabulary depends on: it changes whenever a partition's is stored, grows or goes.
-- Revs only grow, and partitions' ids are never used again, within an incarnation of the database (null:
-- not noted yet).
SELECT (SELECT uuid FROM current_incarnation),
       count(v.partition_id), coalesce(sum(v.rev), 0)::bigint, coalesce(max(v.partition_id), 0),
       count(*) FILTER (WHERE v.partition_id IS NULL AND p.node_count > 0),
       count(*) FILTER (WHERE v.rev < p.rev),
       coalesce(sum(v.documents), 0)::bigint
FROM partition p
LEFT JOIN vocabulary v ON v.partition_id = p.id AND v.version = %(version)s


-- name: store_image
-- The image in the place of an older one of its schema, or of another incarnation; the file that it replaces
-- (null: none). No row where there is one as new. Relies on: the fleet is held, so that the partition stays;
-- its rev only grows. Of two at once, one may leave a file that no row names, which `images.sweep` deletes.
WITH old AS MATERIALIZED (
    SELECT file FROM shared_image WHERE partition_id = %(partition)s AND schema = %(schema)s
)
INSERT INTO shared_image (partition_id, schema, incarnation, rev, digest, size, file)
SELECT p.id, %(schema)s, c.uuid, %(rev)s, %(digest)s, %(size)s, %(file)s
FROM partition p, current_incarnation c
WHERE p.id = %(partition)s AND p.rev >= %(rev)s AND c.uuid = %(incarnation)s
ON CONFLICT (partition_id, schema) DO UPDATE
SET incarnation = excluded.incarnation, rev = excluded.rev, digest = excluded.digest, size = excluded.size,
    file = excluded.file, stored_at = now()
WHERE shared_image.incarnation <> excluded.incarnation OR shared_image.rev < excluded.rev
RETURNING (SELECT file FROM old)


-- name: older_schemas
-- The images of a partition but the newest ones, deleted; their files.
DELETE FROM shared_image
WHERE id IN (
    SELECT id FROM shared_image WHERE partition_id = %(partition)s ORDER BY stored_at DESC, id DESC OFFSET %(kept)s
)
RETURNING file


-- name: images_of_the_past
-- Images of other incarnations, deleted; their files.
DELETE FROM shared_image
WHERE incarnation <> %(incarnation)s
RETURNING file
