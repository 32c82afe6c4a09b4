-- Ends those of the jobs given that still run, by Procrastinate's own function for one job.
WITH running AS MATERIALIZED (
    SELECT id FROM procrastinate_jobs WHERE id = ANY(%(jobs)s) AND status = 'doing' ORDER BY id FOR UPDATE
)
SELECT procrastinate_finish_job_v1(id, %(status)s::procrastinate_job_status, %(delete)s) FROM running
