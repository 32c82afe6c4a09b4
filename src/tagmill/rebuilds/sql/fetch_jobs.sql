-- Starts the waiting job of each queue, in the order given: (partition, job). Procrastinate's own function
-- for one job, once a queue; a job that another transaction is starting is passed over.
SELECT (fetched.args->>'partition')::bigint, fetched.id
FROM unnest(%(queues)s::varchar[]) WITH ORDINALITY AS wanted (queue, place)
CROSS JOIN LATERAL procrastinate_fetch_job_v2(ARRAY[wanted.queue], NULL) AS fetched
WHERE fetched.id IS NOT NULL
ORDER BY wanted.place
