"""A fleet of 100,000 nodes, 500 tags and 12.5% tombstones in the middle of a forced rebuild, made
by SQL in seconds: documents and evaluations are not needed to see what reading it costs."""

from __future__ import annotations

import random

from django.contrib.auth.models import User

from tagmill.matches import expressions
from tagmill.tags import rebuilds
from tests.support.sql import execute, filled_tables
from tests.support.workers import a_worker

PARTITIONS = 98
SLOTS = 1176
LIVE = SLOTS * 7 // 8
TAGS = 500
MANUAL = 5
REBUILDS = 100
WORKERS = 20
# Matches of one expression differ, but need not all be different.
BITMAPS = 64
REV = 1000


def fill() -> None:
    """Two clusters; every eighth slot is a tombstone, older than the matches. In every tenth
    partition a node was deleted after the matches were made. All tags are in a forced rebuild; a
    hundred rebuilds of all tags are over."""
    _begin_anew()
    _drop_foreign_keys()
    _nodes()
    _tags()
    _rebuilds()
    _workers()
    # A sample differs from one time to the next, and so might the plans. So many rows are all.
    execute("SET LOCAL default_statistics_target = 400")
    execute("ANALYZE")
    execute("SET LOCAL default_statistics_target = DEFAULT")


def _begin_anew() -> None:
    """What earlier tests have left: rows that are dead, in files that are large, and the numbers
    that ids go on from. Plans and what they read depend on it. The rollback brings it back."""
    execute(f"TRUNCATE {', '.join(filled_tables())} RESTART IDENTITY")


def _drop_foreign_keys() -> None:
    """Each test would check every row anew. The rollback brings them back."""
    for table, name in execute(
        "SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint "
        "WHERE contype = 'f' AND connamespace = 'public'::regnamespace"
    ):
        execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def _nodes() -> None:
    execute(
        "INSERT INTO cluster (uuid, name) SELECT gen_random_uuid(), unnest('{north,south}'::text[])"
    )
    execute(
        "INSERT INTO partition (cluster_id, number, rev, capacity, next_slot, node_count) "
        "SELECT c.id, n, %s, %s, %s, %s FROM cluster c, generate_series(1, %s) n ORDER BY c.id, n",
        [REV, SLOTS, SLOTS, LIVE, PARTITIONS // 2],
    )
    execute(
        "INSERT INTO node (system_id, hostname, partition_id, slot, rev, digest, deleted_at) "
        "SELECT 'n' || p.id || '-' || s, 'host-' || p.id || '-' || s, p.id, s, s %% 900 + 1, "
        "'\\x01', "
        "CASE WHEN s %% 8 = 0 THEN now() END "
        "FROM partition p, generate_series(0, %s - 1) s",
        [SLOTS],
    )


def _tags() -> None:
    texts = [f"//a{number + 1}" for number in range(TAGS)]
    execute(
        "INSERT INTO expression (text, namespaces, digest, named_at) "
        "SELECT text, '{}', digest, now() FROM unnest(%s::text[], %s::bytea[]) AS e (text, digest)",
        [texts, [expressions.digest(text, {}) for text in texts]],
    )
    execute(
        "INSERT INTO tag (name, expression_id) "
        "SELECT 't' || lpad(row_number() OVER (ORDER BY id)::text, 4, '0'), id FROM expression"
    )
    # Bit 0 of every byte is that of a tombstone.
    chance = random.Random(1)
    bitmaps = [
        bytes(chance.getrandbits(8) & 0xFE for _ in range(SLOTS // 8)) for _ in range(BITMAPS)
    ]
    execute(
        "INSERT INTO match (expression_id, partition_id, rev, members) "
        "SELECT e.id, p.id, %s, (%s::bytea[])[1 + (7 * e.id + p.id) %% %s] "
        "FROM expression e, partition p ORDER BY p.id, e.id",
        [REV, bitmaps, BITMAPS],
    )
    execute("INSERT INTO tag (name) SELECT 'manual' || n FROM generate_series(1, %s) n", [MANUAL])
    execute(
        "INSERT INTO assignment (tag_id, partition_id, members) "
        "SELECT t.id, p.id, %s FROM tag t, partition p WHERE t.expression_id IS NULL",
        [bitmaps[0]],
    )
    execute(
        "UPDATE partition SET rev = rev + 1, node_count = node_count - 1 WHERE id %% 10 = 0", []
    )
    execute(
        "UPDATE node SET rev = p.rev, deleted_at = now() FROM partition p "
        "WHERE p.id = node.partition_id AND p.id %% 10 = 0 AND node.slot = 1",
        [],
    )


def _rebuilds() -> None:
    execute(
        "INSERT INTO rebuild (uuid, reason, state, finished_at) "
        "SELECT gen_random_uuid(), 'forced', 'complete', now() FROM generate_series(1, %s)",
        [REBUILDS],
    )
    execute(
        "INSERT INTO rebuild_tag (rebuild_id, tag_id) "
        "SELECT r.id, t.id FROM rebuild r, tag t WHERE t.expression_id IS NOT NULL"
    )
    rebuilds.request(None, User.objects.create_user("forcing"))


def _workers() -> None:
    for number in range(WORKERS):
        a_worker(name=f"worker {number}")
    execute(
        "INSERT INTO lease (uuid, worker_id, partition_id, job_id, rev, deadline) "
        "SELECT gen_random_uuid(), w.id, p.id, p.id, p.rev, now() + interval '1 minute' "
        "FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM worker) w "
        "JOIN (SELECT id, rev, row_number() OVER (ORDER BY id) AS n FROM partition) p "
        "ON p.n %% (SELECT count(*) FROM worker) + 1 = w.n",
        [],
    )
