-- Deletes some targets of rebuilds that are over and whose totals are stored: nobody reads them any more.
DELETE FROM rebuild_target
WHERE ctid = ANY (ARRAY(
    SELECT t.ctid
    FROM rebuild r
    JOIN rebuild_target t ON t.rebuild_id = r.id
    WHERE r.totals IS NOT NULL
    LIMIT %(most)s
))
