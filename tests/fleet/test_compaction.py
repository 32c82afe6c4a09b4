"""A fleet whose machines come and go keeps its size, and nobody sees its nodes move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import Sum

from tagmill.fleet import incarnation
from tagmill.fleet.models import Cluster, Node, Partition, PastPartition
from tagmill.flows import compaction, feed, ingest, maintenance
from tagmill.matches.models import MatchChange
from tagmill.tags import assignments, changes, tags
from tests.fleet.test_moves import state, tags_of, trail_adds_up
from tests.support.fleet import BARE, HAS_GPU, carriers, node, put, tag, true_carriers
from tests.support.sql import execute
from tests.support.workers import a_worker, jobs, work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small(configure: Callable[..., None], north: Cluster) -> None:
    configure(partition_slots=8)


def fleet(*, gone: int = 5) -> None:
    """A full partition of which so many nodes are deleted, every second with a GPU, and one node in
    the next; all is evaluated."""
    tags.create("gpu", definition=HAS_GPU)
    tags.create("hand")
    for number in range(9):
        put(f"n{number}", xml=BARE if number % 2 else b"<node class='display'/>")
    assignments.assign("hand", ["n5", "n6", "n8"], [])
    work(a_worker())
    for number in range(gone):
        ingest.delete(f"n{number}")
    work(a_worker(name="again"))


def seen() -> dict[str, Any]:
    """What readers see of the nodes, but for their places and revs."""
    fields = ("hostname", "kind", "created_at", "updated_at", "digest")
    return {
        row["system_id"]: (
            *(bytes(row[name]) if name == "digest" else row[name] for name in fields),
            tags_of(row["system_id"]),
            sorted(document.xml for document in node(row["system_id"]).documents.all()),
        )
        for row in Node.objects.filter(deleted_at=None).values("system_id", *fields)
    }


@pytest.mark.django_db(transaction=True)
def test_nodes_move_with_all_that_is_theirs_and_make_no_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet()
    execute("UPDATE node SET created_at = '2020-01-01', updated_at = '2021-01-01'")
    before, first = seen(), node("n6").partition
    incarnation.current()
    cursor = feed.decode("")
    listed = changes.described(changes.of(tag("gpu")).order_by("id"))
    monkeypatch.setattr(compaction, "MAX_MOVED", 2)
    maintenance.compact()
    assert seen() == before
    assert not Partition.objects.filter(id=first.id).exists()
    assert node("n6").partition == node("n8").partition
    assert (carriers("gpu"), carriers("hand")) == ({"n6", "n8"}, {"n5", "n6", "n8"})
    assert (state("gpu"), jobs("todo")) == (("ready", 2), [])
    assert trail_adds_up()
    # The trail has both halves, of which nobody is told; and the old names, for what was before.
    assert MatchChange.objects.filter(is_move=True).count() == 2
    assert changes.described(changes.of(tag("gpu")).order_by("id")) == listed
    assert {change.cluster for change in listed} == {"north"}
    found = feed.read(cursor, 100).changes
    assert {(item.kind, item.body["system_id"], item.body["deleted"]) for item in found} == {
        ("node", name, False) for name in ("n5", "n6", "n7")
    }
    assert PastPartition.objects.get().names == [f"n{number}" for number in range(8)]
    execute("UPDATE past_partition SET gone_at = '2020-01-01'")
    maintenance.clean()
    assert not PastPartition.objects.exists()


def test_what_is_stale_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet()
    tags.create("late", definition="//node")
    assert (compaction.run(), compaction.figures()) == (0, (2, 4, 5, 1))
    # Also where it has become stale since it was chosen.
    chosen = compaction._Sparse(node("n6").partition_id, node("n6").partition.cluster_id, 3)
    assert compaction._move(chosen) == 0
    work(a_worker(name="late"))
    assert (compaction.run(), compaction.figures()) == (3, (1, 4, 0, 0))
    assert carriers("late") == {"n5", "n6", "n7", "n8"}


def test_a_partition_with_more_nodes_and_one_that_is_not_full_stay(
    configure: Callable[..., None],
) -> None:
    fleet(gone=3)
    assert compaction.run() == 0
    configure(partition_slots=8, compact_below=0.7)
    assert compaction.run() == 5
    configure(partition_slots=8, compact_below=0)
    for number in range(5, 9):
        ingest.delete(f"n{number}")
    assert (compaction.run(), Partition.objects.count()) == (0, 1)


def test_a_node_never_moves_to_an_earlier_place() -> None:
    """Who reads pages of nodes in their order would miss it."""
    fleet()
    # The first has room, and the second is full of deleted nodes.
    Partition.objects.filter(id=node("n7").partition_id).update(capacity=16)
    Partition.objects.filter(id=node("n8").partition_id).update(next_slot=8)
    assert compaction.figures().sparse == 1
    assert compaction.run() == 0


def test_ten_times_the_fleet_leaves_at_most_twice_its_partitions() -> None:
    size = 16
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    put(*(f"n{number}" for number in range(size)))
    work(worker)
    before = Partition.objects.count()
    alive = [f"n{number}" for number in range(size)]
    for first in range(0, 10 * size, 8):
        # Some machines stay for ever, among others that come and go.
        gone, alive = alive[1:9], [alive[0], *alive[9:]]
        for name in gone:
            ingest.delete(name)
        new = [f"m{first + number}" for number in range(8)]
        put(*new[:4], xml=BARE)
        put(*new[4:])
        alive = [*alive[first % 3 :], *alive[: first % 3], *new]
        work(worker)
        maintenance.compact()
    slots = Partition.objects.aggregate(taken=Sum("next_slot"))["taken"]
    assert Partition.objects.count() <= 2 * before
    assert Node.objects.count() == slots <= 2 * size + 8
    assert set(Node.objects.filter(deleted_at=None).values_list("system_id", flat=True)) == {*alive}
    assert carriers("gpu") == true_carriers(HAS_GPU)
    assert trail_adds_up()
