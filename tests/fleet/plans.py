"""A fleet of realistic size, without documents' content, to hold query plans at."""

from __future__ import annotations

from tests.support.sql import execute

PARTITIONS = 100
SLOTS = 1024
EXPRESSIONS = 200


def fill() -> None:
    """100 partitions of 1024 nodes with a document each (1% tombstones), 200 published expressions
    with all their matches (5% stale; in the order in which completions write them), a job for every
    second partition."""
    execute("INSERT INTO cluster (uuid, name) VALUES (gen_random_uuid(), 'big')")
    execute(
        "INSERT INTO partition (cluster_id, number, rev, capacity, next_slot, node_count) "
        "SELECT c.id, n, 1000, %s, %s, %s FROM cluster c, generate_series(1, %s) n",
        [SLOTS, SLOTS, SLOTS, PARTITIONS],
    )
    execute(
        "INSERT INTO node (system_id, partition_id, slot, rev, digest, deleted_at) "
        "SELECT 'n' || p.id || '-' || s, p.id, s, s %% 1000, "
        "CASE WHEN s %% 100 = 0 THEN ''::bytea ELSE '\\x01' END, "
        "CASE WHEN s %% 100 = 0 THEN now() END "
        "FROM partition p, generate_series(0, %s - 1) s",
        [SLOTS],
    )
    execute(
        "INSERT INTO document (node_id, probe, xml, size, digest) "
        "SELECT id, 'lshw', '<list/>', 7, '\\x01' FROM node WHERE deleted_at IS NULL"
    )
    execute(
        "INSERT INTO expression (text, namespaces, digest) "
        "SELECT '//a' || n, '{}', int4send(n) FROM generate_series(1, %s) n",
        [EXPRESSIONS],
    )
    execute("INSERT INTO tag (name, expression_id) SELECT 't' || id, id FROM expression")
    execute(
        "INSERT INTO match (expression_id, partition_id, rev, members) "
        "SELECT e.id, p.id, CASE WHEN (e.id + p.id) %% 20 = 0 THEN 990 ELSE 1000 END, "
        "decode(repeat('55', %s), 'hex') FROM expression e, partition p ORDER BY p.id, e.id",
        [SLOTS // 8],
    )
    execute(
        "INSERT INTO rebuild (uuid, reason, state) "
        "SELECT gen_random_uuid(), 'forced', 'running' FROM generate_series(1, 2)"
    )
    execute(
        "INSERT INTO rebuild_target (rebuild_id, expression_id, partition_id, rev) "
        "SELECT r.id, e.id, p.id, 1000 FROM rebuild r, expression e, partition p"
    )
    execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status) "
        "SELECT 'partition:' || id, 'evaluate_partition', 'partition:' || id, 'partition:' || id, "
        "json_build_object('partition', id), 'todo' FROM partition WHERE id %% 2 = 0",
        [],
    )
    # Otherwise each test would look at every row's foreign keys anew.
    execute("SET CONSTRAINTS ALL IMMEDIATE")
    execute("SET CONSTRAINTS ALL DEFERRED")
    execute("ANALYZE")
