-- Of each cluster: (id, name, live workers whose token names it).
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
