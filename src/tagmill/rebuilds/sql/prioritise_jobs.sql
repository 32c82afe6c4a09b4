-- Relies on: the jobs are locked, and wait (waiting_jobs.sql).
UPDATE procrastinate_jobs
SET priority = new.priority
FROM unnest(%(jobs)s::bigint[], %(priorities)s::int[]) AS new (id, priority)
WHERE procrastinate_jobs.id = new.id
