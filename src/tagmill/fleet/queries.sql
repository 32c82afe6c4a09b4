-- name: batch
-- One page of a partition's nodes after slot `after`, with their documents, in one statement.
-- Without `since`: live nodes that have documents. With it: every node changed after that rev, tombstones
-- and nodes without documents included. Bounded by count and by XML bytes, never below one node.
-- Each row begins with the incarnation (null: not noted yet), the partition's rev (null: no such partition) and
-- its cluster in the same moment; without any node there is one row, which has nothing else.
-- `found` is the number of nodes looked at: more than are returned when there is a next page.
-- Relies on: `digest` is empty exactly for nodes without documents and for tombstones; a statement sees one
-- moment, so that the page is as old as its rev. A claim that is too low would cost an evaluation; one that is
-- too high would hide a change for ever.
-- Run with `sql.bound`.
WITH now AS MATERIALIZED (
    SELECT (SELECT uuid::text FROM current_incarnation) AS incarnation, p.rev, p.cluster_id
    FROM (SELECT) one
    LEFT JOIN partition p ON p.id = %(partition)s
),
page AS MATERIALIZED (
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
SELECT now.incarnation, now.rev, now.cluster_id,
       c.slot, c.rev, c.is_deleted, coalesce(c.found, 0), d.probe, d.xml, d.packed, d.dictionary_id, d.size
FROM now
LEFT JOIN counted c ON c.nth = 1 OR (c.nth <= %(max_nodes)s AND c.total <= %(max_bytes)s)
LEFT JOIN document d ON d.node_id = c.id
ORDER BY c.slot, d.probe


-- name: changed_nodes
-- What `batch` says of each of these partitions with its `since`, where that is one page: of at most `max_nodes` each,
-- and of the first of them, in the order given, until they have more than `max_bytes` of XML. A partition without any
-- changed node has one row, which has nothing of a node.
-- Relies on: as `batch`; a statement sees one moment, so that each page is as old as the partition's rev.
-- Run with `sql.bound`.
WITH looked AS MATERIALIZED (
    SELECT given.id AS partition_id, given.place, p.rev AS partition_rev, changed.*
    FROM unnest(%(partitions)s::bigint[], %(sinces)s::bigint[]) WITH ORDINALITY AS given (id, since, place)
    JOIN partition p ON p.id = given.id
    LEFT JOIN LATERAL (
        SELECT n.id, n.slot, n.rev, n.deleted_at IS NOT NULL AS is_deleted,
               (SELECT coalesce(sum(d.size), 0) FROM document d WHERE d.node_id = n.id) AS bytes
        FROM node n
        WHERE n.partition_id = given.id AND n.rev > given.since
        ORDER BY n.rev
        LIMIT %(max_nodes)s + 1
    ) changed ON true
),
counted AS (
    -- The frame of a sum in an order ends with the last row of the same place.
    SELECT looked.*, count(id) OVER (PARTITION BY place) AS found, sum(coalesce(bytes, 0)) OVER (ORDER BY place) AS total
    FROM looked
)
SELECT c.partition_id, c.partition_rev, c.slot, c.rev, c.is_deleted, d.probe, d.xml, d.packed, d.dictionary_id, d.size
FROM counted c
LEFT JOIN document d ON d.node_id = c.id
WHERE c.found <= %(max_nodes)s AND c.total <= %(max_bytes)s
ORDER BY c.place, c.slot, d.probe


-- name: current_dictionaries
-- The dictionaries that pack now. Relies on: nothing; one that is superseded meanwhile still unpacks.
SELECT DISTINCT ON (cluster_id, probe) cluster_id, probe, id
FROM document_dictionary
WHERE cluster_id IS NOT NULL
ORDER BY cluster_id, probe, version DESC


-- name: dictionary
-- Run it wherever a document names one that this process does not know.
SELECT data, cluster_id FROM document_dictionary WHERE id = %(id)s


-- name: adopt_dictionary
-- The next version, from which on it packs; nothing where there is a dictionary of the very same bytes, of
-- whatever cluster. Relies on: nobody else trains for the cluster (`claim_look`).
INSERT INTO document_dictionary (id, cluster_id, probe, version, data, ratio, ratio_now)
SELECT %(id)s, %(cluster)s, %(probe)s, 1 + coalesce(max(version), 0), %(data)s, %(ratio)s, %(ratio)s
FROM document_dictionary
WHERE cluster_id = %(cluster)s AND probe = %(probe)s
ON CONFLICT (id) DO NOTHING


-- name: dictionary_ratio
-- What it packed to when it was adopted, or when no other did better.
SELECT ratio FROM document_dictionary WHERE id = %(id)s


-- name: note_ratio
-- How it packs now, and what that is compared with the next time.
UPDATE document_dictionary SET ratio = %(ratio)s, ratio_now = %(now)s WHERE id = %(id)s


-- name: clusters_to_look_at
-- Clusters that have enough nodes for a dictionary, and were not looked at for `seconds`; or never, or
-- without a dictionary when they had half of the nodes.
SELECT p.cluster_id, sum(p.node_count)::int
FROM partition p
LEFT JOIN document_look l USING (cluster_id)
GROUP BY p.cluster_id, l.looked_at, l.nodes
HAVING sum(p.node_count) >= %(documents)s
   AND (l.looked_at IS NULL OR l.looked_at <= now() - make_interval(secs => %(seconds)s)
        OR (2 * l.nodes <= sum(p.node_count)
            AND NOT EXISTS (SELECT FROM document_dictionary d WHERE d.cluster_id = p.cluster_id)))
ORDER BY p.cluster_id


-- name: claim_look
-- Whoever gets a row looks at the cluster: nobody else does for `seconds`, unless it grew as
-- `clusters_to_look_at` says.
INSERT INTO document_look (cluster_id, nodes, looked_at)
SELECT id, %(nodes)s, now() FROM cluster WHERE id = %(cluster)s
ON CONFLICT (cluster_id) DO UPDATE
SET looked_at = now(), nodes = excluded.nodes
WHERE document_look.looked_at <= now() - make_interval(secs => %(seconds)s)
   OR 2 * document_look.nodes <= excluded.nodes
RETURNING cluster_id


-- name: sample_documents
-- The documents of some nodes of a cluster, as many as `max_bytes` of XML allow. Run with `sql.bound`.
SELECT probe, xml, packed, dictionary_id, size
FROM (
    SELECT d.*, sum(d.size) OVER (ORDER BY d.node_id, d.probe) AS total
    FROM (
        SELECT n.id
        FROM partition p
        JOIN node n ON n.partition_id = p.id
        WHERE p.cluster_id = %(cluster)s AND n.digest <> ''
        ORDER BY random()
        LIMIT %(nodes)s
    ) chosen
    JOIN document d ON d.node_id = chosen.id
) d
WHERE total <= %(max_bytes)s


-- name: packing_state
-- Where packing anew stands, and whether it may begin. Made where it is missing (`ensure_packing`).
SELECT node, probe, "left", damaged, now() >= not_before FROM document_packing


-- name: document_figures
-- What documents take on the disk, with their index and what is out of their rows; how far packing anew came; and how
-- the dictionaries of today packed at the last look (three arrays, in the same order). No document is read.
WITH today AS (
    SELECT DISTINCT ON (c.name, d.probe) c.name, d.probe, d.ratio_now
    FROM document_dictionary d
    JOIN cluster c ON c.id = d.cluster_id
    ORDER BY c.name, d.probe, d.version DESC
)
SELECT pg_total_relation_size('document'),
       coalesce((SELECT "left" FROM document_packing), 0),
       coalesce((SELECT damaged FROM document_packing), 0),
       ARRAY(SELECT name::text FROM today ORDER BY name, probe),
       ARRAY(SELECT probe::text FROM today ORDER BY name, probe),
       ARRAY(SELECT ratio_now FROM today ORDER BY name, probe)


-- name: ensure_packing
-- The row that says how far packing anew came; tables that were emptied lack it.
INSERT INTO document_packing (id, not_before) VALUES (1, now()) ON CONFLICT DO NOTHING


-- name: begin_packing
-- All documents are to be seen once more: in `seconds`, when every process has learnt of the new
-- dictionary; null: at once.
UPDATE document_packing
SET node = -1, probe = '', "left" = (SELECT count(*) FROM document), damaged = 0,
    not_before = CASE WHEN %(seconds)s::int IS NULL THEN now()
                      ELSE greatest(not_before, now() + make_interval(secs => %(seconds)s)) END


-- name: hold_packing
-- The last document that was seen; no row while somebody else goes on, or nothing is to be done. It waits
-- for nobody, and so has no place in the order of locks.
SELECT node, probe FROM document_packing
WHERE node IS NOT NULL AND now() >= not_before
FOR UPDATE SKIP LOCKED


-- name: next_documents
-- The documents after one, and the dictionaries with which they would be packed now (null: none).
-- Run with `sql.bound`.
SELECT page.node_id, page.probe, page.size, page.dictionary_id, p.cluster_id,
       (SELECT y.id
        FROM document_dictionary y
        WHERE y.cluster_id = p.cluster_id AND y.probe = page.probe
        ORDER BY y.version DESC
        LIMIT 1)
FROM (
    SELECT d.node_id, d.probe, d.size, d.dictionary_id
    FROM document d
    WHERE (d.node_id, d.probe) > (%(node)s, %(probe)s)
    ORDER BY d.node_id, d.probe
    LIMIT %(documents)s
) page
JOIN node n ON n.id = page.node_id
JOIN partition p ON p.id = n.partition_id
ORDER BY page.node_id, page.probe


-- name: documents_at_rest
-- Documents by their keys. Run with `sql.bound`.
SELECT d.node_id, d.probe, d.xml, d.packed, d.dictionary_id, d.size, d.digest
FROM unnest(%(nodes)s::bigint[], %(probes)b::text[]) AS wanted (node_id, probe)
JOIN document d USING (node_id, probe)


-- name: repack_documents
-- Stores the same documents in another form. Who uploads one meanwhile wins: its row is locked, and
-- skipped here, or has another digest. It waits for no document, so that it can be part of no deadlock.
-- Run with `sql.run_binary`.
WITH new AS (
    SELECT *
    FROM unnest(
        %(nodes)s::bigint[], %(probes)b::text[], %(digests)b::bytea[], %(packed)b::bytea[],
        %(dictionaries)s::bigint[]
    ) AS new (node_id, probe, digest, packed, dictionary_id)
),
held AS MATERIALIZED (
    SELECT d.node_id, d.probe, new.packed, new.dictionary_id
    FROM new
    JOIN document d USING (node_id, probe)
    WHERE d.digest = new.digest
    ORDER BY d.node_id, d.probe
    FOR NO KEY UPDATE OF d SKIP LOCKED
)
UPDATE document
SET xml = NULL, packed = held.packed, dictionary_id = held.dictionary_id
FROM held
WHERE document.node_id = held.node_id AND document.probe = held.probe


-- name: went_on_packing
-- Relies on: `hold_packing`, in this transaction. No node: the last document was seen.
UPDATE document_packing
SET node = %(node)s, probe = %(probe)s, damaged = damaged + %(damaged)s,
    "left" = CASE WHEN %(node)s::bigint IS NULL THEN 0 ELSE greatest("left" - %(seen)s, 0) END


-- name: forget_dictionaries
-- Deletes dictionaries that have had a successor for `seconds`, or whose cluster is gone, and that no
-- document names. Who names one in this moment is refused by its foreign key, and tries again with another.
DELETE FROM document_dictionary
WHERE id IN (
    SELECT d.id
    FROM document_dictionary d
    WHERE (d.cluster_id IS NULL
           OR EXISTS (SELECT FROM document_dictionary later
                      WHERE later.cluster_id = d.cluster_id AND later.probe = d.probe
                        AND later.version > d.version
                        AND later.trained_at < now() - make_interval(secs => %(seconds)s)))
      AND NOT EXISTS (SELECT FROM document x WHERE x.dictionary_id = d.id)
    FOR UPDATE SKIP LOCKED
)


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
-- Images of other incarnations, and those whose partition has had one of another schema for some days that is newer,
-- deleted; their files.
DELETE FROM shared_image old
WHERE old.incarnation <> %(incarnation)s
   OR old.stored_at < now() - make_interval(days => %(days)s)
      AND EXISTS (SELECT FROM shared_image newer
                  WHERE newer.partition_id = old.partition_id AND newer.schema <> old.schema
                    AND newer.stored_at > old.stored_at)
RETURNING file
