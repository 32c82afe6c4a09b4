INSERT INTO document (node_id, probe, xml, size, digest)
SELECT node_id, probe, xml, size, digest
FROM unnest(
    %(node_ids)s::bigint[], %(probes)s::text[], %(xmls)s::text[], %(sizes)s::int[],
    %(digests)s::bytea[]
) AS new (node_id, probe, xml, size, digest)
ON CONFLICT (node_id, probe) DO UPDATE
SET xml = excluded.xml, size = excluded.size, digest = excluded.digest, uploaded_at = now()
