-- The worker lives. Whether it owes time to everything but previews, and to rebuilds: for what it has
-- evaluated, or for what it holds now; and the incarnation of the revs that it is leased. No row where it
-- registered in another.
UPDATE worker
SET last_heartbeat = now()
WHERE id = %(worker)s
  AND incarnation = (SELECT uuid FROM current_incarnation)
RETURNING ordinary_until > now()
          OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.kind = %(preview)s),
          rebuilds_until > now()
          OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.kind = %(change)s),
          incarnation::text
