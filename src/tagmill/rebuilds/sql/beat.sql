-- The worker lives. Whether it owes time to ordinary work: for previews that it has evaluated, or that
-- it holds now.
UPDATE worker
SET last_heartbeat = now()
WHERE id = %(worker)s
RETURNING ordinary_until > now()
       OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.is_preview)
