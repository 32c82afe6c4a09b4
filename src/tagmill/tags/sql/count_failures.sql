-- Counts one more failure of each expression, by one worker under leases that began at `leased_at`, and
-- fails those that have had enough of them: of `most` different workers, or `most_alone` whoever it was.
-- A worker's next failure counts under a lease that began after its last one: what had two partitions at
-- once when it broke has broken once. Relies on: the expressions are locked.
WITH counted AS (
    UPDATE expression e
    SET attempts = least(e.attempts + 1, 32767), attempted_at = statement_timestamp(),
        failed_by = e.failed_by || %(worker)s::bigint
    FROM unnest(%(expressions)s::bigint[], %(leased_at)s::timestamptz[]) AS new (id, leased_at)
    WHERE e.id = new.id
      AND NOT (%(worker)s = ANY(e.failed_by) AND new.leased_at <= e.attempted_at)
    RETURNING e.id, e.attempts,
              (SELECT count(DISTINCT worker) FROM unnest(e.failed_by) AS by (worker)) AS workers
)
SELECT id FROM counted WHERE workers >= %(most)s OR attempts >= %(most_alone)s
