-- name: caller
-- A token, and the worker that registered with it, if any: the token's id, name, digest, whether it is
-- revoked, and the clusters that it names (null: all of them); the worker's id, uuid, name, and the leases
-- that it has. No row: no such token. One look: a token that is revoked is refused from the next request on.
SELECT t.id, t.name, t.secret_digest, t.revoked_at IS NOT NULL,
       CASE WHEN NOT t.all_clusters THEN ARRAY(
           SELECT may.cluster_id FROM worker_token_cluster may WHERE may.workertoken_id = t.id ORDER BY 1
       ) END,
       w.id, w.uuid, w.name,
       ARRAY(SELECT lease.uuid FROM lease WHERE lease.worker_id = w.id)
FROM worker_token t
LEFT JOIN worker w ON w.token_id = t.id AND w.uuid = %(worker)s
WHERE t.lookup = %(lookup)s


-- name: live_workers_of
-- How many workers were heard of within `seconds` and may take work of one of the clusters; `but` is not counted.
-- Relies on: heartbeats are of the database's clock.
SELECT count(*)
FROM worker w
JOIN worker_token t ON t.id = w.token_id
WHERE t.revoked_at IS NULL
  AND w.last_heartbeat > now() - make_interval(secs => %(seconds)s)
  AND w.id IS DISTINCT FROM %(but)s::bigint
  AND (t.all_clusters
       OR EXISTS (SELECT FROM worker_token_cluster may
                  WHERE may.workertoken_id = t.id AND may.cluster_id = ANY(%(clusters)s::bigint[])))


-- name: sharing
-- As `live_workers_of`, without `but`; and how many nodes, `most` at most, have changed in each of the partitions
-- given, in their order, after it was settled.
-- Relies on: a node has the rev of its last change.
SELECT (SELECT count(*)
        FROM worker w
        JOIN worker_token t ON t.id = w.token_id
        WHERE t.revoked_at IS NULL
          AND w.last_heartbeat > now() - make_interval(secs => %(seconds)s)
          AND (t.all_clusters
               OR EXISTS (SELECT FROM worker_token_cluster may
                          WHERE may.workertoken_id = t.id AND may.cluster_id = ANY(%(clusters)s::bigint[])))),
       ARRAY(SELECT (SELECT count(*)
                     FROM (SELECT
                           FROM node n
                           WHERE n.partition_id = p.id AND n.rev > p.settled_rev
                           LIMIT %(most)s) changed)::int
             FROM unnest(%(partitions)s::bigint[]) WITH ORDINALITY AS given (id, place)
             JOIN partition p ON p.id = given.id
             ORDER BY given.place)


-- name: begin_lease
-- Records a heartbeat and charges quotas, as `charge_quotas`, under the fleet's shared lock, which is had before the
-- worker's row is locked. Returns whether the worker has spent its quotas for previews, changes and definitions, with
-- what it has evaluated or with what it holds now; and the incarnation of the revs that it is leased. No row: as `beat`.
-- Relies on: quotas were charged by the same clock, the database's.
WITH fleet AS MATERIALIZED (
    SELECT pg_advisory_xact_lock_shared(%(namespace)s::int, %(fleet)s::int)
)
UPDATE worker
SET last_heartbeat = now(),
    preview_quota_until = greatest(
        preview_quota_until,
        now() + %(previews_share)s::float8 * (now() - %(previews_began)s::timestamptz + make_interval(secs => %(beside)s))),
    change_quota_until = greatest(
        change_quota_until, now() + %(changes_share)s::float8 * (now() - %(changes_began)s::timestamptz)),
    definition_quota_until = greatest(
        definition_quota_until, now() + %(definitions_share)s::float8 * (now() - %(definitions_began)s::timestamptz))
FROM fleet
WHERE id = %(worker)s
  AND incarnation = (SELECT uuid FROM current_incarnation)
RETURNING preview_quota_until > now()
          OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.kind = %(preview)s),
          change_quota_until > now()
          OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.kind = %(change)s),
          definition_quota_until > now()
          OR EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id AND lease.kind = %(definition)s),
          incarnation::text,
          (SELECT coalesce(max(epoch), 0) FROM placement)


-- name: beat
-- Records a heartbeat, and what the worker did of late, where it says so. Returns no row for a worker that is gone, or
-- that registered in another incarnation.
-- Relies on: nothing.
UPDATE worker
SET last_heartbeat = now(),
    done_seconds = coalesce(%(seconds)s::float8, done_seconds),
    done_partitions = coalesce(%(partitions)s::bigint, done_partitions),
    done_documents = coalesce(%(documents)s::bigint, done_documents)
WHERE id = %(worker)s
  AND incarnation = (SELECT uuid FROM current_incarnation)
RETURNING id


-- name: candidates
-- Waiting jobs of the worker's clusters that may be leased now: the partitions that it owns first, and with
-- them, since they are older, the jobs that `overtaken` times as many as wait were made after; then those that it
-- holds. One row of four arrays (partitions, priorities, clusters, nodes), which take a tenth of what so many rows
-- take to read.
-- Relies on: `lock` is the partition's; a job that runs keeps others of its partition waiting.
SELECT coalesce(array_agg(partition_id), '{}'), coalesce(array_agg(priority), '{}'),
       coalesce(array_agg(cluster_id), '{}'), coalesce(array_agg(node_count), '{}')
FROM (
    SELECT p.id AS partition_id, j.priority, p.cluster_id, p.node_count
    FROM procrastinate_jobs j
    JOIN partition p ON j.queue_name = 'partition:' || p.id
    WHERE j.status = 'todo'
      AND j.task_name = 'evaluate_partition'
      AND (j.scheduled_at IS NULL OR j.scheduled_at <= now())
      AND (%(clusters)s::bigint[] IS NULL OR p.cluster_id = ANY(%(clusters)s::bigint[]))
      AND NOT EXISTS (
          SELECT FROM procrastinate_jobs running WHERE running.lock = j.lock AND running.status = 'doing'
      )
    -- A list, not an array: the server looks it up by hash, also where it does not know it when it plans.
    ORDER BY p.id IN (SELECT unnest(%(owns)s::bigint[]))
             OR j.id < (SELECT max(id) FROM procrastinate_jobs) - %(overtaken)s::int * count(*) OVER () DESC,
             p.id IN (SELECT unnest(%(holds)s::bigint[])) DESC,
             j.id
) waiting


-- name: epoch
-- Relies on: nothing.
SELECT coalesce(max(epoch), 0) FROM placement


-- name: fetch_jobs
-- Starts the waiting job of each queue, in the order given: (partition, job). What Procrastinate's
-- procrastinate_fetch_job_v2 does for one job, for all at once: 98 of its calls take 8 ms. Relies on: one
-- job of a partition waits at most, and so, while its row is locked, none of the partition can start.
WITH waiting AS MATERIALIZED (
    SELECT j.id, wanted.place
    FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS wanted (queue, place)
    JOIN procrastinate_jobs j ON j.queueing_lock = wanted.queue AND j.status = 'todo'
    WHERE NOT EXISTS (
        SELECT FROM procrastinate_jobs other WHERE other.lock = j.lock AND other.status = 'doing'
    )
    FOR UPDATE OF j SKIP LOCKED
),
started AS (
    UPDATE procrastinate_jobs j
    SET status = 'doing'
    FROM waiting
    WHERE j.id = waiting.id
    RETURNING j.id, (j.args->>'partition')::bigint AS partition, waiting.place
)
SELECT partition, id FROM started ORDER BY place


-- name: finish_leases
-- Ends those of the worker's leases given that still stand, and their jobs as succeeded, by Procrastinate's own
-- function; jobs of kind `preview` are deleted, since somebody who types makes more than anybody looks at.
-- Returns them.
-- Relies on: the partitions are locked; jobs are finished under their lease's lock.
WITH standing AS MATERIALIZED (
    SELECT uuid, partition_id, job_id, rev, kind, leased_at
    FROM lease
    WHERE worker_id = %(worker)s AND uuid = ANY(%(leases)s::uuid[])
    ORDER BY partition_id
    FOR UPDATE
),
running AS MATERIALIZED (
    SELECT j.id
    FROM standing
    JOIN procrastinate_jobs j ON j.id = standing.job_id
    WHERE j.status = 'doing'
    ORDER BY j.id
    FOR UPDATE OF j
),
deleted AS (
    DELETE FROM lease USING standing WHERE lease.uuid = standing.uuid
)
SELECT standing.uuid::text, standing.partition_id, standing.rev, standing.leased_at, standing.kind,
       CASE WHEN running.id IS NOT NULL
            THEN procrastinate_finish_job_v1(running.id, 'succeeded', standing.kind = %(preview)s)::text
       END
FROM standing
LEFT JOIN running ON running.id = standing.job_id
ORDER BY standing.partition_id


-- name: finish_jobs
-- Ends those of the jobs given that still run, by Procrastinate's own function for one job.
-- Relies on: the leases of the jobs are locked.
WITH running AS MATERIALIZED (
    SELECT id FROM procrastinate_jobs WHERE id = ANY(%(jobs)s) AND status = 'doing' ORDER BY id FOR UPDATE
)
SELECT procrastinate_finish_job_v1(id, %(status)s::procrastinate_job_status, %(delete)s) FROM running


-- name: grant_leases
-- One lease for each partition, in the order given. Relies on: this transaction has started their jobs.
WITH wanted AS (
    SELECT *
    FROM unnest(%(partitions)s::bigint[], %(jobs)s::bigint[], %(kinds)s::int[])
        WITH ORDINALITY AS wanted (partition_id, job_id, kind, place)
),
granted AS (
    INSERT INTO lease (uuid, worker_id, partition_id, job_id, rev, kind, deadline)
    SELECT gen_random_uuid(), %(worker)s, p.id, wanted.job_id, p.rev, wanted.kind,
           now() + make_interval(secs => %(seconds)s)
    FROM wanted
    JOIN partition p ON p.id = wanted.partition_id
    RETURNING uuid, partition_id, rev
)
SELECT granted.uuid, granted.partition_id, cluster.uuid, granted.rev, p.capacity
FROM granted
JOIN wanted ON wanted.partition_id = granted.partition_id
JOIN partition p ON p.id = granted.partition_id
JOIN cluster ON cluster.id = p.cluster_id
ORDER BY wanted.place


-- name: clear_delays
-- Lets jobs with a delay be leased at once. Relies on: the jobs are locked, and wait (`waiting_jobs`).
UPDATE procrastinate_jobs
SET scheduled_at = NULL
WHERE id = ANY(%(jobs)s) AND scheduled_at IS NOT NULL


-- name: job_counts
-- (status, how many) of the jobs of one task.
-- Relies on: nothing.
SELECT status::text, count(*) FROM procrastinate_jobs WHERE task_name = %(task)s GROUP BY 1


-- name: known_partitions
-- Partitions that have a job, waiting or running.
-- Relies on: a job names its partition in `args`.
SELECT (args->>'partition')::bigint
FROM procrastinate_jobs
WHERE status IN ('todo', 'doing') AND task_name = 'evaluate_partition'


-- name: members
-- Workers that are to own a part of a cluster, and whether each was silent for `seconds`: (cluster, worker, uuid,
-- room, whether it has warmed its share, whether it is silent).
-- Relies on: heartbeats are of the database's clock.
SELECT c.id, w.id, w.uuid, w.room, w.is_ready,
       w.last_heartbeat <= now() - make_interval(secs => %(seconds)s)
FROM worker w
JOIN worker_token t ON t.id = w.token_id
JOIN cluster c ON t.all_clusters
               OR EXISTS (SELECT FROM worker_token_cluster may
                          WHERE may.workertoken_id = t.id AND may.cluster_id = c.id)
WHERE w.room > 0
  AND t.revoked_at IS NULL
  AND w.incarnation = (SELECT uuid FROM current_incarnation)


-- name: next_epoch
-- Relies on: the membership is locked, so that epochs grow in commit order.
SELECT nextval('membership_epoch')


-- name: notify_work
-- Wakes waiting workers when this transaction commits. A payload is limited to 8000 bytes: a long list of
-- partitions is left out, and then any may have work.
SELECT pg_notify(
    'tagmill_work',
    CASE WHEN octet_length(partitions::text) < 7000
         THEN json_build_object('cluster', cluster_id, 'partitions', partitions)
         ELSE json_build_object('cluster', cluster_id) END::text
)
FROM (
    SELECT cluster_id, json_agg(id ORDER BY id) AS partitions
    FROM partition
    WHERE id = ANY(%(partitions)s)
    GROUP BY cluster_id
) by_cluster


-- name: numbered_partitions
-- (cluster, its partitions). Relies on: nothing.
SELECT cluster_id, array_agg(id) FROM partition GROUP BY cluster_id


-- name: oldest_lease
-- For how many seconds the oldest lease has stood; 0 where there is none.
-- Relies on: `leased_at` is of the database's clock.
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(leased_at)), 0) FROM lease


-- name: orphaned_jobs
-- Jobs that run without a lease: whoever deleted the lease (a worker's removal) left them. Relies on: a
-- lease is stored in the transaction that starts its job.
SELECT j.id
FROM procrastinate_jobs j
WHERE j.status = 'doing' AND j.task_name = 'evaluate_partition'
  AND NOT EXISTS (SELECT FROM lease WHERE lease.job_id = j.id)
ORDER BY j.id
FOR UPDATE OF j SKIP LOCKED


-- name: charge_quotas
-- Charges what previews (and `beside` seconds), changes and definitions took since they began (null: nothing): for
-- so many times as long as their share says the worker takes no more of the kind, while other work waits.
-- Relies on: what began did so by the database's clock. What was charged before is never shortened.
UPDATE worker
SET preview_quota_until = greatest(
        preview_quota_until,
        now() + %(previews_share)s::float8 * (now() - %(previews_began)s::timestamptz + make_interval(secs => %(beside)s))),
    change_quota_until = greatest(
        change_quota_until, now() + %(changes_share)s::float8 * (now() - %(changes_began)s::timestamptz)),
    definition_quota_until = greatest(
        definition_quota_until, now() + %(definitions_share)s::float8 * (now() - %(definitions_began)s::timestamptz))
WHERE id = %(worker)s


-- name: placed_partitions
-- (cluster, partitions, workers that are to hold each, workers that are preferred for each, since when too many
-- are silent, seconds of that, epoch). Relies on: nothing.
SELECT cluster_id, partitions, owners, counting, silent_since,
       coalesce(extract(epoch FROM now() - silent_since), 0)::float8, epoch
FROM placement


-- name: prioritise_jobs
-- Relies on: the jobs are locked, and wait (`waiting_jobs`).
UPDATE procrastinate_jobs
SET priority = new.priority
FROM unnest(%(jobs)s::bigint[], %(priorities)s::int[]) AS new (id, priority)
WHERE procrastinate_jobs.id = new.id


-- name: share_counts
-- (cluster, worker, partitions that it is to hold, those of all that it is preferred for).
-- Relies on: nothing.
SELECT c.name, w.uuid::text,
       count(*) FILTER (WHERE each.owner = w.id), count(*) FILTER (WHERE each.counting = w.id)
FROM placement p
JOIN cluster c ON c.id = p.cluster_id
CROSS JOIN LATERAL unnest(p.owners, p.counting) AS each (owner, counting)
JOIN worker w ON w.id IN (each.owner, each.counting)
GROUP BY 1, 2
ORDER BY 1, 2


-- name: waiting_jobs
-- The partitions given that have a waiting job, which is locked: nobody leases it before this
-- transaction commits, so a lease always sees what this transaction wrote.
SELECT id, queue_name, priority
FROM procrastinate_jobs
WHERE status = 'todo' AND queueing_lock = ANY(%(queues)s)
ORDER BY id
FOR UPDATE


-- name: take_sample
-- The fleet now. Verdicts are counted by the matches that were written since the sample before: those of forced
-- rebuilds and new definitions, each of as many nodes as its partition has. Nothing where there is a sample of
-- the last `seconds`, of another server.
-- Relies on: a partition's rev grows by one with each transaction that changes its nodes; a partition that is dropped takes its revs along,
-- and the changes of that moment are not counted.
WITH before AS (
    SELECT at, revs FROM fleet_sample ORDER BY at DESC LIMIT 1
),
fleet AS (
    SELECT coalesce(sum(node_count), 0) AS nodes, coalesce(sum(rev), 0) AS revs FROM partition
)
INSERT INTO fleet_sample (nodes, revs, stale, jobs, leases, workers, changes, verdicts)
SELECT fleet.nodes, fleet.revs,
       (SELECT count(*)
        FROM live_expression live
        CROSS JOIN partition p
        LEFT JOIN effective_match m ON m.expression_id = live.id AND m.partition_id = p.id
        WHERE m.rev IS DISTINCT FROM p.rev),
       (SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND task_name = 'evaluate_partition'),
       (SELECT count(*) FROM lease),
       (SELECT count(*) FROM worker WHERE last_heartbeat > now() - make_interval(secs => %(alive)s)),
       greatest(0, fleet.revs - coalesce((SELECT revs FROM before), fleet.revs)),
       (SELECT coalesce(sum(p.node_count), 0)
        FROM before, match m
        JOIN partition p ON p.id = m.partition_id
        WHERE m.evaluated_at > before.at)
FROM fleet
WHERE NOT EXISTS (SELECT FROM before WHERE at > now() - make_interval(secs => %(seconds)s))
ON CONFLICT (at) DO NOTHING


-- name: forget_samples
-- Deletes what charts show no more.
DELETE FROM fleet_sample WHERE at < now() - make_interval(secs => %(seconds)s)


-- name: remember_traces
-- The request that made work in these partitions, the last of several. Locks in the order of partitions.
INSERT INTO work_trace (partition_id, place)
SELECT wanted.id, %(place)s
FROM unnest(%(partitions)s::bigint[]) AS wanted (id)
ORDER BY wanted.id
ON CONFLICT (partition_id) DO UPDATE SET place = excluded.place, at = now()


-- name: take_traces
-- Waits for nobody: one that is written to at this moment is of other work.
DELETE FROM work_trace
WHERE partition_id IN (
    SELECT partition_id FROM work_trace WHERE partition_id = ANY(%(partitions)s) FOR UPDATE SKIP LOCKED
)
RETURNING place


-- name: forget_traces
-- Deletes those of work that nobody was leased. Waits for nobody, as `take_traces`.
DELETE FROM work_trace
WHERE partition_id IN (
    SELECT partition_id FROM work_trace WHERE at < now() - make_interval(mins => %(minutes)s) FOR UPDATE SKIP LOCKED
)
