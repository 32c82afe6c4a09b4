-- The uuid of the incarnation; no row where the database's history is not the one that was noted.
SELECT uuid FROM current_incarnation
