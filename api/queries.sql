-- name: body_cache_state
-- What a look into the body cache begins with: the incarnation (null: not noted yet), the database's clock
-- before what follows is read, the generation of these scopes, and whether somebody switched one of them off. Run with `sql.bound`.
-- Relies on: generations only grow, and no row goes.
SELECT (SELECT uuid::text FROM current_incarnation), extract(epoch FROM statement_timestamp())::float8,
       coalesce(sum(generation), 0)::bigint, coalesce(bool_or(is_off), false)
FROM body_cache_control
WHERE scope = ANY(%(scopes)s::text[])


-- name: look_at_partition
-- Before a worker reads a partition's documents, in one look: its token's name, digest, whether it is revoked, and
-- whether it may read the partition (a token for all clusters may ask for any number); the incarnation (null: not
-- noted yet), the partition's rev (null: no such partition); and as `body_cache_state` the generation of these
-- scopes, and whether one of them is off. No row: no such token. Run with `sql.bound`.
-- Relies on: as `body_cache_state`. A token that is revoked reads nothing from the next request on.
SELECT t.name, t.secret_digest, t.revoked_at IS NOT NULL,
       t.all_clusters
       OR EXISTS (SELECT FROM worker_token_cluster may
                  WHERE may.workertoken_id = t.id AND may.cluster_id = p.cluster_id),
       (SELECT uuid::text FROM current_incarnation), p.rev, kept.generation, kept.is_off
FROM worker_token t
LEFT JOIN partition p ON p.id = %(partition)s
CROSS JOIN (
    SELECT coalesce(sum(generation), 0)::bigint AS generation, coalesce(bool_or(is_off), false) AS is_off
    FROM body_cache_control
    WHERE scope = ANY(%(scopes)s::text[])
) kept
WHERE t.lookup = %(lookup)s


-- name: body_cache_flush
-- Nobody finds what was kept under the scope before.
INSERT INTO body_cache_control (scope, generation) VALUES (%(scope)s, 1)
ON CONFLICT (scope) DO UPDATE SET generation = body_cache_control.generation + 1, changed_at = now()


-- name: body_cache_switch
-- Switches the scope off or on.
INSERT INTO body_cache_control (scope, generation, is_off) VALUES (%(scope)s, 0, %(is_off)s)
ON CONFLICT (scope) DO UPDATE SET is_off = excluded.is_off, changed_at = now()


-- name: body_cache_switch_all_on
-- Switches on whatever was switched off.
UPDATE body_cache_control SET is_off = false, changed_at = now() WHERE is_off


-- name: body_cache_announce
-- Wakes the servers. Relies on: they need not hear it; names hold the generation.
SELECT pg_notify(%(channel)s, %(payload)s)


-- name: body_cache_report
-- What one process has counted by now, one row for each keyspace.
INSERT INTO body_cache_report (process, keyspace, lookups, hits, misses, coalesced, evicted_bytes, oversize, builds,
                         build_seconds, entries, bytes)
SELECT %(process)s, *
FROM unnest(
    %(keyspace)s::text[], %(lookups)s::bigint[], %(hits)s::bigint[], %(misses)s::bigint[],
    %(coalesced)s::bigint[], %(evicted_bytes)s::bigint[], %(oversize)s::bigint[], %(builds)s::bigint[],
    %(build_seconds)s::float8[], %(entries)s::bigint[], %(bytes)s::bigint[]
)
ON CONFLICT (process, keyspace) DO UPDATE
SET (lookups, hits, misses, coalesced, evicted_bytes, oversize, builds, build_seconds, entries, bytes, at) =
    (excluded.lookups, excluded.hits, excluded.misses, excluded.coalesced, excluded.evicted_bytes,
     excluded.oversize, excluded.builds, excluded.build_seconds, excluded.entries, excluded.bytes, now())


-- name: body_cache_forget
-- Deletes the reports of processes that have ended: the others report all the time.
DELETE FROM body_cache_report WHERE at < now() - make_interval(secs => %(seconds)s)


-- name: body_cache_stats
-- The sums over all processes, by keyspace. Relies on: nothing.
SELECT keyspace, count(*), sum(lookups)::bigint, sum(hits)::bigint, sum(misses)::bigint, sum(coalesced)::bigint,
       sum(evicted_bytes)::bigint, sum(oversize)::bigint, sum(builds)::bigint, sum(build_seconds),
       sum(entries)::bigint, sum(bytes)::bigint
FROM body_cache_report
GROUP BY keyspace
ORDER BY keyspace


-- name: tokens
-- Users' tokens that are good now, by their digests: columns of the token and of its user, the names of the
-- user's roles, and whether it is to be recorded that the token is used. One look by the unique index, however
-- many tokens there are. Run with `sql.bound`.
-- Relies on: nothing; who loses a role while a request runs has it until the end of that request.
SELECT t.id, t.digest, t.key, t.user_id, t.role, t.is_login,
       u.id, u.is_superuser, u.username, u.is_staff, u.is_active,
       array(
           SELECT g.name::text
           FROM auth_user_groups member
           JOIN auth_group g ON g.id = member.group_id
           WHERE member.user_id = u.id AND g.name = ANY(%(groups)s::text[])
       ),
       t.last_used_at IS NULL OR t.last_used_at < now() - make_interval(secs => %(recorded_every)s::float)
FROM user_token t
JOIN auth_user u ON u.id = t.user_id
WHERE t.digest = ANY(%(digests)s::bytea[])
  AND u.is_active
  AND (t.expires_at IS NULL OR t.expires_at > now())
