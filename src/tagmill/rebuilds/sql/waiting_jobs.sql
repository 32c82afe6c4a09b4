-- The partitions given that have a waiting job, which is locked: nobody leases it before this
-- transaction commits, so a lease always sees what this transaction wrote.
SELECT id, queue_name, priority
FROM procrastinate_jobs
WHERE status = 'todo' AND queueing_lock = ANY(%(queues)s)
ORDER BY id
FOR UPDATE
