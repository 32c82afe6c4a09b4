"""The hot statements at a realistic size: which tables they read whole, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Count

from tagmill import sql
from tagmill.fleet import batches
from tagmill.fleet.models import Cluster, Node, Partition
from tagmill.flows import feed, ingest
from tagmill.matches import matches
from tagmill.matches.models import Expression
from tagmill.tags import (
    changes,
    conversion,
    freshness,
    members,
    places,
    previews,
    publishing,
    rebuilds,
    waiting,
)
from tagmill.tags.models import Rebuild, Tag
from tagmill.work import queue
from tests.fleet.plans import fill
from tests.support.sql import execute, plan, scanned

pytestmark = pytest.mark.django_db

BRACES = str.maketrans("[]", "{}")
LARGE = {"node", "document", "match", "rebuild_target"}
# Each takes 1 to 25 ms; the trap of nested loops that this is for takes minutes.
MAX_MILLISECONDS = 1000


@pytest.fixture(scope="module", autouse=True)
def _filled(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """One for both tests, each of which ends with a rollback to it."""
    with django_db_blocker.unblock(), transaction.atomic():
        fill()
        yield
        transaction.set_rollback(True)


@pytest.fixture(autouse=True)
def _rolled_back(db: None) -> None:
    pass


def ids(model: Any) -> list[int]:
    return list(model.objects.order_by("id").values_list("id", flat=True))


def test_no_hot_statement_reads_a_large_table_whole() -> None:
    partitions, expressions = ids(Partition), ids(Expression)
    tag = Tag.objects.order_by("id")[3]
    ann = User.objects.create_user("ann")
    no_waits = {"expressions": [], "rebuilds": [], "previews": [], "seconds": 60}
    shown = [previews.start(f"//a{i}", {}, ann, f"client {i}").uuid for i in range(10)]

    def page(since: int | None, after: int) -> tuple[Any, str, dict[str, Any]]:
        bounds = {"max_nodes": 256, "max_bytes": 1 << 22}
        at = {"partition": partitions[7], "since": since, "after": after}
        return batches, "batch", {**at, **bounds}

    any_node = {"clusters": None, "first": 0, "most": 256}
    hot: list[tuple[Any, str, dict[str, Any]]] = [
        page(None, -1),
        page(None, 500),
        page(990, -1),
        page(0, 500),
        (ingest, "live_nodes", {"system_ids": [f"n{partitions[0]}-{i}" for i in range(256)]}),
        (ingest, "live_nodes", {"system_ids": ["n1-1"]}),
        (matches, "stale", {"partitions": partitions[:1]}),
        (matches, "stale", {"partitions": partitions[:4]}),
        *(
            (matches, "lock_matches", {**locked, "advancing": advancing})
            for locked in [{"partitions": partitions[:4], "expressions": expressions}]
            for advancing in ([], partitions[:4])
        ),
        (
            queue,
            "candidates",
            {"clusters": None, "holds": partitions[:9], "owns": partitions[5:], "overtaken": 8},
        ),
        (queue, "candidates", {"clusters": ids(Cluster), "holds": [], "owns": [], "overtaken": 8}),
        (freshness, "status", {"expressions": expressions[:1], "tags": [tag.id]}),
        (members, "membership", {"expression": tag.expression_id, "tag": tag.id}),
        (matches, "stale_for", {"expressions": expressions[:1]}),
        (
            previews,
            "preview_members",
            {"expression": expressions[0], "compare_to": tag.id, "cluster": None},
        ),
        (
            previews,
            "preview_members",
            {"expression": expressions[0], "compare_to": None, "cluster": None},
        ),
        (previews, "preview_progress", {"previews": shown}),
        (places, "bitmaps", {**any_node, "tags": ids(Tag)[:3], "hostname": None}),
        (places, "bitmaps", {**any_node, "tags": ids(Tag)[:1], "hostname": "x"}),
        (places, "nodes_at", {"partitions": partitions, "slots": partitions}),
        (waiting, "waiting", {**no_waits, "expressions": expressions[:1]}),
        (
            matches,
            "carried",
            {
                "old_partitions": partitions[:2],
                "old_slots": [1, 2],
                "new_partitions": partitions[2:4],
                "new_slots": [3, 4],
            },
        ),
        (changes, "named_places", {"partitions": partitions, "slots": ["{1}"] * len(partitions)}),
        (
            changes,
            "named_places",
            {"partitions": partitions[:1], "slots": [str([*range(1000)]).translate(BRACES)]},
        ),
        (conversion, "present_members", {"expression": expressions[0]}),
        (queue, "fetch_jobs", {"queues": [queue.queue_of(item) for item in partitions]}),
    ]
    for module, name, parameters in hot:
        found = plan(sql.query(module.__file__, name), parameters)
        assert not scanned(found) & LARGE, (name, parameters, found)


def test_who_follows_what_changes_reads_no_trail_and_no_nodes_from_the_beginning() -> None:
    """Sixty thousand entries of transactions that are over, and a cursor near their end."""
    tag, partitions = Tag.objects.order_by("id")[0], ids(Partition)
    execute(
        "INSERT INTO match_change (expression_id, partition_id, to_rev, added, removed, txid) "
        "SELECT %s, %s, 1, '', '', n::text::xid8 FROM generate_series(1, 20000) n",
        [tag.expression_id, partitions[0]],
    )
    execute(
        "INSERT INTO assignment_change (tag_id, partition_id, actor, added, removed, txid) "
        "SELECT %s, %s, '', '', '', n::text::xid8 FROM generate_series(1, 20000) n",
        [tag.id, partitions[0]],
    )
    execute(
        "INSERT INTO audit_event (kind, object_id, name, action, changes, txid) "
        "SELECT 'tag', %s, 't', 'changed', '{}', n::text::xid8 FROM generate_series(1, 20000) n",
        [tag.id],
    )
    execute("ANALYZE match_change, assignment_change, audit_event")
    since, until = "19990:19990:", "20010:20010:"
    trail = {"since": since, "until": until, "after": 0, "most": 500}
    found = plan(sql.query(feed.__file__, "feed_trail"), trail)
    assert not scanned(found) & {"match_change", "assignment_change", "audit_event"}, found
    nodes = {"since": until, "partition": partitions[3], "slot": -1, "most": 500}
    found = plan(sql.query(feed.__file__, "feed_nodes"), nodes)
    assert not scanned(found) & LARGE, found
    found = plan(sql.query(feed.__file__, "feed_rebuilds"), {"since": until, "after": 0, "most": 9})
    assert not scanned(found) & LARGE, found


def test_who_follows_from_the_beginning_reads_a_page_of_nodes_at_a_time() -> None:
    first = {"since": feed.NOTHING, "partition": 0, "slot": -1, "most": 10}
    statement = sql.query(feed.__file__, "feed_nodes")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", first)
        root = cursor.fetchone()[0][0]["Plan"]
    of_one = max(Partition.objects.annotate(n=Count("nodes")).values_list("n", flat=True))
    assert rows_of(root, "node") <= 2 * of_one < len(ids(Node)) / 2


def rows_of(root: dict[str, Any], table: str) -> float:
    """How many rows of the table a plan has read."""
    is_of = root.get("Relation Name") == table
    here = root["Actual Rows"] * root["Actual Loops"] if is_of else 0
    return float(here + sum(rows_of(child, table) for child in root.get("Plans", [])))


def test_what_looks_at_all_matches_stays_cheap() -> None:
    # Every second tag waits for its definition to be complete.
    Tag.objects.filter(id__in=ids(Tag)[::2]).update(pending_expression=Expression.objects.first())
    rebuilds_found = ids(Rebuild)
    no_waits = {"expressions": [], "rebuilds": [], "previews": [], "seconds": 60}
    wide: list[tuple[Any, str, dict[str, Any]]] = [
        (rebuilds, "reached", {"rebuilds": rebuilds_found}),
        (rebuilds, "progress", {"rebuild": rebuilds_found[0]}),
        (freshness, "status", {"expressions": ids(Expression), "tags": ids(Tag)}),
        (waiting, "waiting", {**no_waits, "expressions": ids(Expression)}),
        (waiting, "waiting", {**no_waits, "rebuilds": rebuilds_found[:1]}),
        (publishing, "complete_tags", {"tags": ids(Tag), "without": []}),
        (matches, "stale", {"partitions": ids(Partition)}),
        (matches, "stale_partitions", {}),
    ]
    for module, name, parameters in wide:
        statement = sql.query(module.__file__, name)
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
            found = cursor.fetchone()[0][0]
        assert found["Execution Time"] < MAX_MILLISECONDS, (name, found)
