-- A new uuid for the history that the database is in, unless somebody else made it meanwhile: the row is
-- looked at again under its lock. `declared`: in any case.
INSERT INTO incarnation (id, uuid, history)
SELECT 1, gen_random_uuid(), database_history.name
FROM database_history
ON CONFLICT (id) DO UPDATE
SET uuid = excluded.uuid, history = excluded.history, since = now()
WHERE %(declared)s OR incarnation.history <> excluded.history
RETURNING uuid
