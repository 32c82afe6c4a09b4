-- Relies on: the jobs are locked, and wait (waiting_jobs.sql).
UPDATE procrastinate_jobs SET priority = %(priority)s WHERE id = ANY(%(jobs)s)
