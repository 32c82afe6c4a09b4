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
