-- Waiting jobs of the worker's clusters that may be leased now: the partitions that it holds first, and
-- with them, since they are older, the jobs that `overtaken` times as many as wait were made after.
-- Relies on: `lock` is the partition's; a job that runs keeps others of its partition waiting.
SELECT j.queue_name, p.id, j.priority, p.cluster_id
FROM procrastinate_jobs j
JOIN partition p ON j.queue_name = 'partition:' || p.id
WHERE j.status = 'todo'
  AND j.task_name = 'evaluate_partition'
  AND (j.scheduled_at IS NULL OR j.scheduled_at <= now())
  AND (%(clusters)s::bigint[] IS NULL OR p.cluster_id = ANY(%(clusters)s))
  AND NOT EXISTS (
      SELECT FROM procrastinate_jobs running WHERE running.lock = j.lock AND running.status = 'doing'
  )
ORDER BY p.id = ANY(%(holds)s)
         OR j.id < (SELECT max(id) FROM procrastinate_jobs) - %(overtaken)s * count(*) OVER () DESC,
         j.id
