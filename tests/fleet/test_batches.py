"""Pages of a partition's documents."""

from __future__ import annotations

import pytest

from tagmill.errors import NotFound
from tagmill.fleet import batches, clusters
from tagmill.fleet.documents import Upload
from tagmill.flows import ingest
from tagmill_wire.messages import BatchNode
from tests.support.fleet import BARE, GPU, node, north, put, the_partition
from tests.support.workers import pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def partition(db: None) -> int:
    north("a", "b", "c", "d")
    return the_partition().id


def slots(partition: int, *args: int | None) -> tuple[list[int], int | None]:
    batch = batches.read(partition, *args)  # type: ignore[arg-type]
    return [item.slot for item in batch.nodes], batch.next


def test_pages_are_bounded_by_count_and_go_on_after_the_last_slot(partition: int) -> None:
    assert slots(partition, None, None, 3, 1 << 20) == ([0, 1, 2], 2)
    assert slots(partition, None, 2, 3, 1 << 20) == ([3], None)
    assert slots(partition, None, None, 4, 1 << 20) == ([0, 1, 2, 3], None)
    assert slots(partition, None, 3, 4, 1 << 20) == ([], None)


def test_pages_are_bounded_by_bytes_and_never_empty(partition: int) -> None:
    assert slots(partition, None, None, 10, 2 * len(GPU)) == ([0, 1], 1)
    assert slots(partition, None, None, 10, 2 * len(GPU) - 1) == ([0], 0)
    assert slots(partition, None, 0, 10, 1) == ([1], 1)
    assert slots(partition, None, 2, 10, 1) == ([3], None)


def test_bytes_are_those_of_all_probes_of_a_node(partition: int) -> None:
    ingest.store([Upload("a", probes={"lldp": BARE})])
    size = 2 * len(GPU) + len(BARE)
    assert slots(partition, None, None, 10, size) == ([0, 1], 1)
    assert slots(partition, None, None, 10, size - 1) == ([0], 0)
    _, nodes = pages(partition)
    assert nodes[0].probes == {"lldp": BARE.decode(), "lshw": GPU.decode()}


def test_without_since_only_live_nodes_with_documents_are_sent(partition: int) -> None:
    ingest.delete("a")
    ingest.store([Upload("b", probes={"lshw": None})])
    rev, nodes = pages(partition)
    assert rev == 3 and [item.slot for item in nodes] == [2, 3]


def test_since_tells_every_change_after_that_rev(partition: int) -> None:
    ingest.delete("a")
    ingest.store([Upload("b", probes={"lshw": None})])
    put("c", xml=BARE)
    assert pages(partition, 1) == (
        4,
        [
            BatchNode(0, 2, None),
            BatchNode(1, 3, {}),
            BatchNode(2, 4, {"lshw": BARE.decode()}),
        ],
    )
    assert [item.slot for item in pages(partition, 3)[1]] == [2]
    assert pages(partition, 4) == (4, [])


def test_since_the_beginning_tells_tombstones_too(partition: int) -> None:
    ingest.delete("d")
    assert [item.probes is None for item in pages(partition, 0)[1]] == [False] * 3 + [True]


def test_a_moved_node_is_a_tombstone_where_it_was(partition: int) -> None:
    clusters.create("south")
    ingest.store([Upload("a", "south")])
    assert pages(partition, 1)[1] == [BatchNode(0, 2, None)]
    moved = node("a").partition_id
    assert pages(moved)[1] == [BatchNode(0, 1, {"lshw": GPU.decode()})]


def test_a_partition_that_is_not_there_is_not_found(db: None) -> None:
    with pytest.raises(NotFound):
        batches.read(7, None, None, 1, 1)
