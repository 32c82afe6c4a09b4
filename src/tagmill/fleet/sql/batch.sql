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
