-- Of the jobs given, those that still run, locked.
SELECT id FROM procrastinate_jobs WHERE id = ANY(%(jobs)s) AND status = 'doing' ORDER BY id FOR UPDATE
