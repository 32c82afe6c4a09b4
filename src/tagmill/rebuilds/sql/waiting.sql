-- What the expressions, rebuilds and previews given wait for: (kind, id, the failure of an expression or
-- null, its cluster, live workers that may answer for the cluster, partitions that wait there, those of
-- them that a worker holds). Nothing is said of what waits for nothing.
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
    LEFT JOIN match m ON m.expression_id = w.expression_id AND m.partition_id = w.partition_id
    WHERE coalesce(CASE w.kind WHEN 'preview' THEN coalesce(m.kept_rev, m.rev) ELSE m.rev END, -1) < w.rev
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
SELECT w.kind, w.id, w.failure, c.name, coalesce(c.workers, 0), w.partitions, w.held
FROM (
    SELECT waiting.kind, id, failure, CASE WHEN failure IS NULL THEN waiting.cluster_id END AS cluster_id,
           count(*) AS partitions, count(lease.partition_id) AS held
    FROM waiting
    LEFT JOIN lease ON lease.partition_id = waiting.partition_id AND lease.deadline > now()
    GROUP BY waiting.kind, id, failure, CASE WHEN failure IS NULL THEN waiting.cluster_id END
) w
LEFT JOIN clusters c ON c.id = w.cluster_id
ORDER BY w.kind, w.id, w.failure NULLS LAST, c.name
