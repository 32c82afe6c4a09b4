-- Jobs that run without a lease: whoever deleted the lease (a worker's removal) left them. Relies on: a
-- lease is stored in the transaction that starts its job.
SELECT j.id
FROM procrastinate_jobs j
WHERE j.status = 'doing' AND j.task_name = 'evaluate_partition'
  AND NOT EXISTS (SELECT FROM lease WHERE lease.job_id = j.id)
ORDER BY j.id
FOR UPDATE OF j SKIP LOCKED
