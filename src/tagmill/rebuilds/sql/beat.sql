-- The worker lives. Whether it owes time to everything but previews, and to rebuilds: for what it has
-- evaluated, or for what it holds now.
UPDATE worker
SET last_heartbeat = now()
WHERE id = %(worker)s
RETURNING ordinary_until > now()
          OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.kind = %(preview)s),
          rebuilds_until > now()
          OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.kind = %(change)s)
