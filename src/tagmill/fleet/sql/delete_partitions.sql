-- Removes partitions that have no live node, with everything that refers to them but the audit trail.
WITH gone AS (SELECT unnest(%(partitions)s::bigint[]) AS id),
targets AS (DELETE FROM rebuild_target USING gone WHERE partition_id = gone.id),
matches AS (DELETE FROM match USING gone WHERE partition_id = gone.id),
assigned AS (DELETE FROM assignment USING gone WHERE partition_id = gone.id),
vocabularies AS (DELETE FROM vocabulary USING gone WHERE partition_id = gone.id),
leased AS (DELETE FROM lease USING gone WHERE partition_id = gone.id),
tombstones AS (DELETE FROM node USING gone WHERE partition_id = gone.id)
DELETE FROM partition USING gone WHERE partition.id = gone.id
