-- Jobs that wait for their time no longer do. Relies on: the jobs are locked, and wait (waiting_jobs.sql).
UPDATE procrastinate_jobs
SET scheduled_at = NULL
WHERE id = ANY(%(jobs)s) AND scheduled_at IS NOT NULL
