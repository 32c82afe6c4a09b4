-- Partitions that have a job, waiting or running.
SELECT (args->>'partition')::bigint
FROM procrastinate_jobs
WHERE status IN ('todo', 'doing') AND task_name = 'evaluate_partition'
