-- name: lock_matches_of
-- The matches of expressions that are collected, locked in the order in which completions lock those that
-- they unsettle.
SELECT m.expression_id
FROM match m
WHERE m.expression_id = ANY(%(expressions)s)
ORDER BY m.partition_id, m.expression_id
FOR UPDATE


-- name: mark_nodes_deleted
-- Makes tombstones. Relies on: the nodes' partitions are locked; `rev` is the raised one. The slot stays
-- taken for ever.
UPDATE node
SET deleted_at = now(), rev = new.rev, digest = ''
FROM unnest(%(ids)s::bigint[], %(revs)s::bigint[]) AS new (id, rev)
WHERE node.id = new.id


-- name: collect_expressions
-- Relies on: the expressions and their matches are locked, and nothing but the audit trail refers to them. The trail of an
-- expression that no tag ever had explains nothing: it goes, too.
WITH targets AS (
    DELETE FROM rebuild_target WHERE expression_id = ANY(%(expressions)s)
),
matches AS (
    DELETE FROM match WHERE expression_id = ANY(%(expressions)s)
),
changes AS (
    DELETE FROM match_change c
    USING expression e
    WHERE e.id = ANY(%(expressions)s) AND e.named_at IS NULL AND c.expression_id = e.id
)
DELETE FROM expression e
WHERE e.id = ANY(%(expressions)s)
  AND (e.named_at IS NULL OR NOT EXISTS (SELECT FROM match_change c WHERE c.expression_id = e.id))


-- name: delete_documents
-- Deletes single documents of nodes. Relies on: the nodes' partitions are locked, and this transaction
-- writes the nodes' digests, too.
DELETE FROM document
USING unnest(%(node_ids)s::bigint[], %(probes)s::text[]) AS gone (node_id, probe)
WHERE document.node_id = gone.node_id AND document.probe = gone.probe


-- name: delete_partitions
-- Removes partitions that have no live node, with everything that refers to them but the audit trail.
-- What their slots were called stays for a while, since the trail names slots. Relies on: the fleet is held alone, so
-- that nobody refers to them meanwhile; a tombstone has no documents; foreign keys are checked at the end, so that
-- the parts may run in any order; each reads what was there before.
WITH gone AS (SELECT unnest(%(partitions)s::bigint[]) AS id),
past AS (
    INSERT INTO past_partition (id, cluster, names)
    SELECT p.id, c.name,
           ARRAY(SELECT n.system_id
                 FROM generate_series(0, p.next_slot - 1) AS place (slot)
                 LEFT JOIN node n ON n.partition_id = p.id AND n.slot = place.slot
                 ORDER BY place.slot)
    FROM gone
    JOIN partition p ON p.id = gone.id
    JOIN cluster c ON c.id = p.cluster_id
),
targets AS (DELETE FROM rebuild_target USING gone WHERE partition_id = gone.id),
matches AS (DELETE FROM match USING gone WHERE partition_id = gone.id),
assigned AS (DELETE FROM assignment USING gone WHERE partition_id = gone.id),
vocabularies AS (DELETE FROM vocabulary USING gone WHERE partition_id = gone.id),
images AS (DELETE FROM shared_image USING gone WHERE partition_id = gone.id),
leased AS (DELETE FROM lease USING gone WHERE partition_id = gone.id),
tombstones AS (DELETE FROM node USING gone WHERE partition_id = gone.id)
DELETE FROM partition USING gone WHERE partition.id = gone.id


-- name: invalidate_matches
-- Every match of the partition, settled or not, becomes stale, and no base for anything: nobody knows at which rev its
-- members were true, and so a forced rebuild that is cancelled does not take it back either. Locks in the
-- order in which completions do. Relies on: the partition is locked.
WITH held AS MATERIALIZED (
    SELECT m.expression_id, m.partition_id
    FROM match m
    WHERE m.partition_id = %(partition)s AND (m.rev IS DISTINCT FROM -1 OR m.kept_rev IS NOT NULL)
    ORDER BY m.partition_id, m.expression_id
    FOR NO KEY UPDATE
)
UPDATE match
SET rev = -1, kept_rev = NULL
FROM held
WHERE match.expression_id = held.expression_id AND match.partition_id = held.partition_id
RETURNING match.expression_id


-- name: delete_documents_of_nodes
-- Deletes all documents of nodes that this transaction deletes. Relies on: their partitions are locked.
DELETE FROM document WHERE node_id = ANY(%(node_ids)s)


-- name: estimated_rows
-- What the last vacuum or analyze estimated: to count would be to read all of each table.
-- Relies on: nothing; it may be behind.
SELECT relname::text, greatest(reltuples, 0)
FROM pg_class
WHERE oid = ANY(%(tables)s::regclass[])
ORDER BY relname


-- name: forget_failures
-- Failed attempts are forgotten when every partition has a fresh match, or one that is younger than the
-- last failure: the partition where it failed is among these.
-- Relies on: a failure leaves the match of its partition stale, and as old as it was.
WITH held AS MATERIALIZED (
    SELECT id FROM expression WHERE attempts > 0 AND failed_at IS NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE expression e
SET attempts = 0, failed_by = '{}'
FROM held
WHERE e.id = held.id
  AND e.attempts > 0
  AND e.failed_at IS NULL
  AND NOT EXISTS (
      SELECT
      FROM partition p
      LEFT JOIN effective_match m ON m.expression_id = e.id AND m.partition_id = p.id
      WHERE m.rev IS DISTINCT FROM p.rev
        AND (m.evaluated_at IS NULL OR e.attempted_at IS NULL OR m.evaluated_at <= e.attempted_at)
  )


-- name: insert_nodes
-- A node that moves is as old as it was (`moved`: its old row), and has not changed where it stays in its cluster
-- (`same`: that row again). Relies on: the partitions are locked and the slots are theirs to give
-- (slot >= next_slot).
INSERT INTO node (system_id, hostname, kind, partition_id, slot, rev, digest, created_at, updated_at)
SELECT system_id, hostname, kind, partition_id, slot, rev, digest,
       coalesce((SELECT old.created_at FROM node old WHERE old.id = new.moved), now()),
       coalesce((SELECT old.updated_at FROM node old WHERE old.id = new.same), now())
FROM unnest(
    %(system_ids)s::text[], %(hostnames)s::text[], %(kinds)s::text[], %(partitions)s::bigint[],
    %(slots)s::int[], %(revs)s::bigint[], %(digests)s::bytea[], %(moved)s::bigint[], %(same)s::bigint[]
) AS new (system_id, hostname, kind, partition_id, slot, rev, digest, moved, same)
RETURNING system_id, id


-- name: live_nodes
-- Live nodes by system_id, with the digests of their documents (two arrays, in the same order), and the rev
-- of the partition at that moment. Run with `sql.bound`.
-- Relies on: nothing; whoever writes asks again under the partitions' locks, unless they have that rev still.
SELECT n.id, n.system_id, n.hostname, n.kind, n.partition_id, n.slot, n.rev, p.cluster_id, p.rev,
       array(SELECT d.probe FROM document d WHERE d.node_id = n.id ORDER BY d.probe),
       array(SELECT d.digest FROM document d WHERE d.node_id = n.id ORDER BY d.probe)
FROM node n
JOIN partition p ON p.id = n.partition_id
WHERE n.system_id = ANY(%(system_ids)b::text[]) AND n.deleted_at IS NULL


-- name: move_documents
-- The documents of nodes go to their rows in other partitions. Relies on: all these partitions are locked, and
-- the new rows have no documents yet.
UPDATE document
SET node_id = moved.new
FROM unnest(%(olds)s::bigint[], %(news)s::bigint[]) AS moved (old, new)
WHERE document.node_id = moved.old


-- name: note_use
-- Keeps `used_at` of the expressions that a tag names near now, so that one that was published for days is
-- still kept for a while after it is replaced. Noted six times in the hours that it is kept for.
-- Relies on: nothing; an expression that is locked is noted the next time.
UPDATE expression
SET used_at = now()
FROM (
    SELECT e.id
    FROM expression e
    WHERE e.used_at < now() - make_interval(secs => 600 * %(hours)s)
      AND (EXISTS (SELECT FROM tag WHERE tag.expression_id = e.id)
           OR EXISTS (SELECT FROM tag WHERE tag.pending_expression_id = e.id))
    ORDER BY e.id
    FOR NO KEY UPDATE OF e SKIP LOCKED
) named
WHERE expression.id = named.id


-- name: stored_documents
-- The documents of the nodes given, as many as `max_bytes` of XML allow. Relies on: nothing; what is made of
-- them is compared with the digests under the lock. Run with `sql.bound`.
SELECT node_id, probe, xml, packed, dictionary_id, size, digest
FROM (
    SELECT d.*, sum(d.size) OVER (ORDER BY d.node_id, d.probe) AS total
    FROM document d
    WHERE d.node_id = ANY(%(nodes)s)
) d
WHERE total <= %(max_bytes)s


-- name: unreferenced
-- Expressions that nothing has named for `hours`. An uncommitted tag that names one holds its row: it is
-- left for the next time.
SELECT e.id
FROM expression e
WHERE e.used_at < now() - make_interval(secs => 3600 * %(hours)s)
  AND (e.preview_until IS NULL OR e.preview_until <= now())
  AND NOT EXISTS (SELECT FROM preview WHERE preview.expression_id = e.id)
  AND NOT EXISTS (SELECT FROM tag WHERE tag.expression_id = e.id)
  AND NOT EXISTS (SELECT FROM tag WHERE tag.pending_expression_id = e.id)
  AND (EXISTS (SELECT FROM match m WHERE m.expression_id = e.id)
       OR e.named_at IS NULL
       OR NOT EXISTS (SELECT FROM match_change c WHERE c.expression_id = e.id))
ORDER BY e.id
FOR UPDATE OF e SKIP LOCKED


-- name: update_nodes
-- Relies on: the nodes' partitions are locked; `rev` is the one that this transaction raised to.
-- Run with `sql.run_binary`.
UPDATE node
SET hostname = new.hostname, kind = new.kind, rev = new.rev, digest = new.digest, updated_at = now()
FROM unnest(
    %(ids)s::bigint[], %(hostnames)b::text[], %(kinds)b::text[], %(revs)s::bigint[],
    %(digests)b::bytea[]
) AS new (id, hostname, kind, rev, digest)
WHERE node.id = new.id


-- name: upsert_documents
-- Stores documents, in the place of those with the same probe. Relies on: the nodes' partitions are locked,
-- and no probe of a node is given twice.
-- Run with `sql.run_binary`.
INSERT INTO document (node_id, probe, xml, packed, dictionary_id, size, digest)
SELECT node_id, probe, xml, packed, dictionary_id, size, digest
FROM unnest(
    %(node_ids)s::bigint[], %(probes)b::text[], %(xmls)b::text[], %(packed)b::bytea[],
    %(dictionaries)s::bigint[], %(sizes)s::int[], %(digests)b::bytea[]
) AS new (node_id, probe, xml, packed, dictionary_id, size, digest)
ON CONFLICT (node_id, probe) DO UPDATE
SET xml = excluded.xml, packed = excluded.packed, dictionary_id = excluded.dictionary_id,
    size = excluded.size, digest = excluded.digest, uploaded_at = now()


-- name: lock_answered
-- Locks the partitions that results name, of the clusters that the worker may answer for (null: all), in the
-- order of their ids. Relies on: as `lock_partitions`.
SELECT id, cluster_id, rev, settled_rev, capacity, next_slot
FROM partition
WHERE id = ANY(%(partitions)s::bigint[])
  AND (%(clusters)s::bigint[] IS NULL OR cluster_id = ANY(%(clusters)s::bigint[]))
ORDER BY id
FOR NO KEY UPDATE


-- name: hold_in_incarnation
-- The incarnation of the database (null: not noted yet), and those of the expressions that exist, which are kept
-- from being collected until the transaction ends. Relies on: the partitions were locked by a statement before,
-- so that what declares a new incarnation waits for them, or is seen here; the collector skips what is locked.
WITH held AS MATERIALIZED (
    SELECT id FROM expression WHERE id = ANY(%(expressions)s::bigint[]) ORDER BY id FOR KEY SHARE
)
SELECT (SELECT uuid::text FROM current_incarnation), ARRAY(SELECT id FROM held)


-- name: server_facts
-- What PostgreSQL says of itself and of this database; its clock as it is now, not as this transaction began.
SELECT current_setting('server_version_num')::int AS version, pg_is_in_recovery() AS is_replica,
       current_setting('fsync')::bool AS fsync, current_setting('synchronous_commit') <> 'off' AS commits_wait,
       current_setting('autovacuum')::bool AS autovacuum, pg_encoding_to_char(d.encoding) AS encoding,
       extract(epoch FROM clock_timestamp())::float8 AS clock, pg_database_size(d.oid) AS bytes,
       age(d.datfrozenxid) AS frozen_age,
       (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend') AS connections
FROM pg_database d
WHERE d.datname = current_database()


-- name: waiting_for_locks
-- Who waits for a lock for so long, and for whom; the longest first.
SELECT a.pid, pg_blocking_pids(a.pid) AS blocked_by, extract(epoch FROM now() - a.query_start)::float8 AS seconds
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.wait_event_type = 'Lock' AND a.query_start <= now() - make_interval(secs => %(seconds)s)
ORDER BY a.query_start
LIMIT %(limit)s


-- name: open_transactions
-- Transactions that are open for so long: what has changed since they began cannot be cleaned up.
SELECT a.pid, a.state, extract(epoch FROM now() - a.xact_start)::float8 AS seconds
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
  AND a.xact_start <= now() - make_interval(secs => %(seconds)s)
ORDER BY a.xact_start
LIMIT %(limit)s


-- name: prepared_transactions
-- Prepared and neither committed nor rolled back: they hold their locks for ever.
SELECT p.gid FROM pg_prepared_xacts p WHERE p.database = current_database() ORDER BY p.prepared LIMIT %(limit)s


-- name: bloated_tables
-- Tables with more dead rows than live ones, where there are many.
SELECT s.relname, s.n_live_tup, s.n_dead_tup
FROM pg_stat_user_tables s
WHERE s.n_dead_tup > greatest(s.n_live_tup, %(rows)s)
ORDER BY s.n_dead_tup DESC
LIMIT %(limit)s


-- name: held_wal
-- Replication slots that nobody reads: the log is kept for them until the disk is full.
SELECT s.slot_name::text FROM pg_replication_slots s WHERE NOT s.active ORDER BY s.slot_name LIMIT %(limit)s


-- name: tables_without_rights
-- Tables of ours that this role may not read and write.
SELECT c.relname::text
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
  AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
           AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
ORDER BY c.relname
LIMIT %(limit)s


-- name: overdue_leases
-- Leases that ended so long ago and are still there: nobody runs the periodic tasks.
SELECT count(*) FROM lease WHERE deadline < now() - make_interval(secs => %(seconds)s)


-- name: feed_now
-- The incarnation (null: not noted yet), which transactions have ended, and the time.
SELECT (SELECT uuid FROM current_incarnation), pg_current_snapshot()::text, extract(epoch FROM now())::float8


-- name: feed_trail
-- What was written by transactions that had ended at the snapshot `until` and had not at `since`, after a place in the
-- order of all: (place, time, actor, action of a tag or null, its name, what changed of it, the tags that a match or an
-- assignment is of, partition, nodes added, nodes removed). Changes of a match that no tag shows have no tags; those of
-- nodes that only moved within their cluster are left out.
-- Relies on: places are taken under the locks of what is changed, and a snapshot that sees a transaction sees those
-- that it waited for, so that what follows from something comes after it. What was written in another incarnation
-- has transactions of another history.
SELECT trail.seq, trail.at, trail.actor, trail.action, trail.name, trail.changes,
       CASE WHEN trail.action IS NULL THEN ARRAY(
           SELECT t.name::text FROM tag t WHERE t.expression_id = trail.expression_id
           UNION ALL
           SELECT t.name::text FROM tag t WHERE t.id = trail.tag_id
           ORDER BY 1
       ) END,
       trail.partition_id, trail.added, trail.removed
FROM (
    SELECT c.seq, c.at, '' AS actor, NULL AS action, NULL AS name, NULL::jsonb AS changes, c.expression_id,
           NULL::bigint AS tag_id, c.partition_id, c.added, c.removed
    FROM match_change c
    WHERE c.txid >= pg_snapshot_xmin(%(since)s::pg_snapshot)
      AND NOT pg_visible_in_snapshot(c.txid, %(since)s::pg_snapshot)
      AND pg_visible_in_snapshot(c.txid, %(until)s::pg_snapshot)
      AND c.seq > %(after)s AND c.at >= (SELECT since FROM incarnation) AND c.is_move IS NULL
    UNION ALL
    SELECT c.seq, c.at, c.actor, NULL, NULL, NULL, NULL, c.tag_id, c.partition_id, c.added, c.removed
    FROM assignment_change c
    WHERE c.txid >= pg_snapshot_xmin(%(since)s::pg_snapshot)
      AND NOT pg_visible_in_snapshot(c.txid, %(since)s::pg_snapshot)
      AND pg_visible_in_snapshot(c.txid, %(until)s::pg_snapshot)
      AND c.seq > %(after)s AND c.at >= (SELECT since FROM incarnation)
    UNION ALL
    SELECT e.seq, e.at, e.actor, e.action, e.name, e.changes, NULL, NULL, NULL, NULL, NULL
    FROM audit_event e
    WHERE e.txid >= pg_snapshot_xmin(%(since)s::pg_snapshot)
      AND NOT pg_visible_in_snapshot(e.txid, %(since)s::pg_snapshot)
      AND pg_visible_in_snapshot(e.txid, %(until)s::pg_snapshot)
      AND e.kind = 'tag' AND e.seq > %(after)s AND e.at >= (SELECT since FROM incarnation)
    ORDER BY seq
    LIMIT %(most)s
) trail
ORDER BY trail.seq


-- name: feed_nodes
-- The nodes that transactions have changed which had not ended at the snapshot `since`, as they are now, after a
-- (partition, slot), in that order: (partition, slot, system_id, hostname, kind, cluster, rev, when, whether deleted).
-- A row's xmin says which transaction wrote it; that of a savepoint is above that of its transaction, so that whatever
-- is not below the oldest that ran then counts: some come twice, none is missed. In a partition the order of revs is
-- that in which transactions commit: what is new is above the highest rev that is not. The tombstone of a node that
-- lives elsewhere says nothing: the node was moved, or made again, and comes there. Transactions count from 3: before
-- all of them nothing was written, and no old node need be looked for. Partition by partition, so that a page reads
-- no more than it shows.
SELECT n.partition_id, n.slot, n.system_id, n.hostname, n.kind, c.name, n.rev, coalesce(n.deleted_at, n.updated_at),
       n.deleted_at IS NOT NULL
FROM (SELECT pg_snapshot_xmin(%(since)s::pg_snapshot)::text::bigint AS oldest,
             pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) at
JOIN partition p ON p.id >= %(partition)s
    AND (at.next >> 32 << 32) + p.xmin::text::bigint
        - CASE WHEN p.xmin::text::bigint > (at.next & 4294967295) THEN 4294967296 ELSE 0 END >= at.oldest
JOIN cluster c ON c.id = p.cluster_id
CROSS JOIN LATERAL (
    SELECT coalesce((
        SELECT old.rev
        FROM node old
        WHERE old.partition_id = p.id AND at.oldest > 2
          AND (at.next >> 32 << 32) + old.xmin::text::bigint
              - CASE WHEN old.xmin::text::bigint > (at.next & 4294967295) THEN 4294967296 ELSE 0 END < at.oldest
        ORDER BY old.rev DESC
        LIMIT 1
    ), -1) AS rev
) known
CROSS JOIN LATERAL (
    SELECT *
    FROM node
    WHERE node.partition_id = p.id AND node.rev > known.rev
      AND (p.id > %(partition)s OR node.slot > %(slot)s)
    -- By the index of each partition: nothing can estimate how few are new, and all nodes would be read.
    OFFSET 0
) n
WHERE n.deleted_at IS NULL
   OR (SELECT true FROM node live WHERE live.system_id = n.system_id AND live.deleted_at IS NULL) IS NULL
ORDER BY p.id, n.slot
LIMIT %(most)s


-- name: feed_rebuilds
-- The rebuilds that were begun or have ended since, as `feed_nodes` says it: (id, uuid, state, reason, who asked,
-- when, when it ended, how many tags).
SELECT r.id, r.uuid, r.state, r.reason, u.username, r.requested_at, r.finished_at,
       (SELECT count(*) FROM rebuild_tag rt WHERE rt.rebuild_id = r.id)
FROM (SELECT pg_snapshot_xmin(%(since)s::pg_snapshot)::text::bigint AS oldest,
             pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) at
JOIN rebuild r ON r.id > %(after)s
    AND (at.next >> 32 << 32) + r.xmin::text::bigint
        - CASE WHEN r.xmin::text::bigint > (at.next & 4294967295) THEN 4294967296 ELSE 0 END >= at.oldest
LEFT JOIN auth_user u ON u.id = r.requested_by_id
ORDER BY r.id
LIMIT %(most)s


-- name: sparse_partitions
-- Partitions that are full, of which at most that part of the slots has live nodes, and where every live expression is
-- fresh; the sparsest first. Relies on: nothing; whoever empties one looks again under its lock.
SELECT p.id, p.cluster_id, p.node_count
FROM partition p
WHERE p.next_slot = p.capacity AND p.node_count BETWEEN 1 AND %(below)s * p.capacity
  AND NOT EXISTS (
      SELECT
      FROM live_expression live
      LEFT JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = p.id
      WHERE m.rev IS DISTINCT FROM p.rev
  )
ORDER BY p.node_count, p.id
LIMIT %(most)s


-- name: partition_figures
-- Partitions, live nodes, tombstones, and the partitions that `sparse_partitions` would name if all were fresh.
SELECT count(*), coalesce(sum(node_count), 0)::bigint, coalesce(sum(next_slot - node_count), 0)::bigint,
       count(*) FILTER (WHERE next_slot = capacity AND node_count BETWEEN 1 AND %(below)s * capacity)
FROM partition


-- name: fresh_members
-- The members of the live expressions that are fresh in a partition, by their ids. Run with `sql.bound`.
-- Relies on: the partition is locked, and `rev` is what it is then, so that they are true of its nodes.
SELECT live.id, m.members
FROM live_expression live
JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = %(partition)s
WHERE m.rev = %(rev)s
ORDER BY live.id


-- name: nodes_of_partition
-- Live nodes of a partition as `live_nodes` has them. Run with `sql.bound`. Relies on: the partition is locked.
SELECT n.id, n.system_id, n.hostname, n.kind, n.partition_id, n.slot, n.rev, p.cluster_id, p.rev,
       array(SELECT d.probe FROM document d WHERE d.node_id = n.id ORDER BY d.probe),
       array(SELECT d.digest FROM document d WHERE d.node_id = n.id ORDER BY d.probe)
FROM node n
JOIN partition p ON p.id = n.partition_id
WHERE n.partition_id = %(partition)s AND n.deleted_at IS NULL
ORDER BY n.slot
LIMIT %(most)s


-- name: place_in_trail
-- A place in the order of all changes, before those that this transaction makes from now on.
SELECT nextval('trail_seq')


-- name: mark_moves
-- The changes of matches that this transaction made after a place are those of nodes that move within their cluster.
-- Relies on: since then it moved nodes, and did nothing else.
UPDATE match_change SET is_move = true WHERE txid = pg_current_xact_id() AND seq > %(after)s


-- name: exported_documents
-- The documents of the nodes at these (partition, slot), by node and probe. Of nodes beyond as many as have
-- `max_bytes` of XML together, but for the first, it is only said that they are cut.
-- Relies on: nothing. Run with `sql.bound`.
SELECT partition_id, slot, probe, CASE WHEN is_cut THEN NULL ELSE xml END,
       CASE WHEN is_cut THEN NULL ELSE packed END, dictionary_id, size, is_cut
FROM (
    SELECT n.partition_id, n.slot, d.*,
           sum(d.size) OVER so_far > %(max_bytes)s AND dense_rank() OVER so_far > 1 AS is_cut
    FROM unnest(%(partitions)s::bigint[], %(slots)s::int[]) AS place (partition_id, slot)
    JOIN node n ON n.partition_id = place.partition_id AND n.slot = place.slot
    JOIN document d ON d.node_id = n.id
    -- What is summed up includes all of a node.
    WINDOW so_far AS (ORDER BY n.partition_id, n.slot)
) found
ORDER BY partition_id, slot, probe
