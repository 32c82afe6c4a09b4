-- Starts the waiting job of each queue, in the order given: (partition, job). What Procrastinate's
-- procrastinate_fetch_job_v2 does for one job, for all at once: 98 of its calls take 8 ms. Relies on: one
-- job of a partition waits at most, and so, while its row is locked, none of the partition can start.
WITH waiting AS MATERIALIZED (
    SELECT j.id, wanted.place
    FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS wanted (queue, place)
    JOIN procrastinate_jobs j ON j.queueing_lock = wanted.queue AND j.status = 'todo'
    WHERE NOT EXISTS (
        SELECT FROM procrastinate_jobs other WHERE other.lock = j.lock AND other.status = 'doing'
    )
    FOR UPDATE OF j SKIP LOCKED
),
started AS (
    UPDATE procrastinate_jobs j
    SET status = 'doing'
    FROM waiting
    WHERE j.id = waiting.id
    RETURNING j.id, (j.args->>'partition')::bigint AS partition, waiting.place
)
SELECT partition, id FROM started ORDER BY place
