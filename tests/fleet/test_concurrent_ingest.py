"""Writers at the same time: revs in commit order, nothing lost, nobody stuck."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tagmill.fleet import batches, clusters
from tagmill.fleet.documents import Upload, Verdict
from tagmill.fleet.models import Node
from tagmill.flows import ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.tags import assignments, tags
from tests.support.fleet import BARE, GPU, carriers, node, north, put, the_partition
from tests.support.threads import done, in_thread, until_blocked
from tests.support.workers import pages

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_jobs")]


def upload(*uploads: Upload) -> list[str]:
    return [verdict.outcome for verdict in ingest.store(uploads)]


def test_rev_order_is_commit_order() -> None:
    north("a", "b")
    partition = the_partition().id
    with transaction.atomic():
        put("a", xml=BARE)
        second = in_thread(lambda: put("b", xml=BARE))
        until_blocked()
        # The second writer has not got its rev yet, and a reader sees neither.
        assert in_thread(lambda: pages(partition, 1)).result() == (1, [])
    assert done(second)[0].rev == 3
    assert (node("a").rev, node("b").rev) == (2, 3)


def test_a_probe_that_somebody_else_has_added_counts() -> None:
    clusters.create("north")
    ingest.store([Upload("a", probes={f"p{number}": BARE for number in range(15)})])
    with transaction.atomic():
        upload(Upload("a", probes={"mine": BARE}))
        other = in_thread(lambda: upload(Upload("a", probes={"yours": BARE})))
        until_blocked()
    assert done(other) == ["refused"]
    assert "yours" not in set(node("a").documents.values_list("probe", flat=True))


def test_a_reader_that_polls_since_never_skips_a_node() -> None:
    clusters.create("north")
    names = [f"n{i}" for i in range(6)]
    put(*names)
    partition = the_partition().id
    rev, _ = pages(partition)
    seen: dict[int, int] = {}
    stop = threading.Event()

    def write(own: list[str]) -> None:
        for i in range(12):
            document = f"<list><i>{i}</i></list>".encode()
            ingest.store([Upload(name, probes={"lshw": document}) for name in own])

    def poll() -> int:
        held = rev
        while True:
            is_last = stop.is_set()
            held, nodes = pages(partition, held)
            seen.update({item.slot: item.rev for item in nodes})
            if is_last:
                return held

    reader = in_thread(poll)
    writers = [in_thread(lambda own=own: write(own)) for own in (names[:3], names[3:])]
    for writer in writers:
        done(writer)
    stop.set()
    assert done(reader) == the_partition().rev == 1 + 24
    assert seen == dict(Node.objects.values_list("slot", "rev"))


def test_an_unchanged_upload_does_not_wait_for_the_partition() -> None:
    north("a", "b")
    with transaction.atomic():
        put("a", xml=BARE)
        assert done(in_thread(lambda: put("b")))[0].outcome == "unchanged"


def test_of_two_that_create_one_node_one_creates_it() -> None:
    clusters.create("north")
    with transaction.atomic():
        assert upload(Upload("a", probes={"lshw": GPU})) == ["created"]
        same = in_thread(lambda: upload(Upload("a", probes={"lshw": GPU})))
        other = in_thread(lambda: upload(Upload("a", probes={"lldp": GPU})))
        until_blocked(2)
    assert (done(same), done(other)) == (["unchanged"], ["updated"])
    assert Node.objects.count() == 1
    assert node("a").documents.count() == 2


def test_two_clusters_can_be_given_the_same_nodes_in_opposite_order() -> None:
    clusters.create("north")
    clusters.create("south")
    names = [f"n{i}" for i in range(40)]
    ready = threading.Barrier(2)

    def store(cluster: str, order: list[str]) -> list[Verdict]:
        ready.wait(10)
        return ingest.store([Upload(name, cluster) for name in order])

    first = in_thread(lambda: store("north", names))
    second = in_thread(lambda: store("south", names[::-1]))
    outcomes = {verdict.outcome for verdict in done(first) + done(second)}
    assert outcomes == {"created", "updated"}
    assert Node.objects.filter(deleted_at=None).count() == 40
    clusters_used = Node.objects.filter(deleted_at=None).values_list(
        "partition__cluster", flat=True
    )
    assert len(set(clusters_used)) == 1


def test_an_upload_that_waits_for_a_move_does_not_move_the_node_back() -> None:
    clusters.create("north")
    clusters.create("south")
    put("a", "b", cluster="north")
    put("c", cluster="south")
    with transaction.atomic():
        assert upload(Upload("a", "south")) == ["updated"]
        # It touches both clusters, so that it holds also the partition that the node moved to.
        waiting = in_thread(
            lambda: upload(
                Upload("a", hostname="x"), Upload("b", hostname="x"), Upload("c", hostname="x")
            )
        )
        until_blocked()
    assert done(waiting) == ["updated"] * 3
    assert node("a").partition.cluster.name == "south"
    assert node("a").hostname == "x"
    assert Node.objects.filter(system_id="a").count() == 2


def test_an_upload_that_waits_for_a_delete_creates_the_node_again() -> None:
    north("a")
    with transaction.atomic():
        ingest.delete("a")
        waiting = in_thread(lambda: upload(Upload("a", probes={"lshw": BARE})))
        until_blocked()
    assert done(waiting) == ["created"]
    assert node("a").slot == 1


def test_a_delete_that_waits_for_a_move_deletes_the_moved_node() -> None:
    clusters.create("north")
    clusters.create("south")
    put("a", cluster="north")
    tags.create("mine")
    assignments.assign("mine", ["a"], [])
    with transaction.atomic():
        upload(Upload("a", "south"))
        waiting = in_thread(lambda: ingest.delete("a"))
        until_blocked()
    done(waiting)
    assert not Node.objects.filter(deleted_at=None).exists()
    assert carriers("mine") == set()


def test_a_page_and_its_rev_are_of_one_moment() -> None:
    """Nothing can come between the two: they are read by one statement."""
    north("a")
    partition = the_partition().id
    with CaptureQueriesContext(connection) as seen:
        batch = batches.read(partition, None, None, 10, 1000)
    assert len(seen.captured_queries) == 1
    assert (batch.rev, batch.nodes[0].rev) == (1, 1)
    put("a", xml=BARE)
    batch = batches.read(partition, None, None, 10, 1000)
    assert (batch.rev, batch.nodes[0].probes) == (2, {"lshw": BARE.decode()})


def test_a_cluster_that_is_deleted_while_a_node_is_made_there_is_not_found() -> None:
    cluster = clusters.create("north")
    with transaction.atomic():
        delete_cluster(cluster)
        waiting = in_thread(lambda: ingest.store([Upload("a", "north")]))
        until_blocked()
    (verdict,) = done(waiting)
    assert verdict.error is not None and verdict.error.code == "not_found"


def test_manual_tags_move_with_many_nodes_at_once_without_deadlock() -> None:
    for name in ("north", "east", "south", "west"):
        clusters.create(name)
    put("a", "b", cluster="north")
    put("c", "d", cluster="east")
    tags.create("t1")
    tags.create("t2")
    assignments.assign("t1", ["a", "d"], [])
    assignments.assign("t2", ["b", "c"], [])
    ready = threading.Barrier(2)

    def move(names: list[str], cluster: str) -> Any:
        ready.wait(10)
        return upload(*(Upload(name, cluster) for name in names))

    first = in_thread(lambda: move(["b", "a"], "south"))
    second = in_thread(lambda: move(["d", "c"], "west"))
    assert done(first) + done(second) == ["updated"] * 4
    assert (carriers("t1"), carriers("t2")) == ({"a", "d"}, {"b", "c"})


def test_a_node_that_moves_while_it_is_assigned_is_assigned_where_it_is() -> None:
    clusters.create("north")
    clusters.create("south")
    put("a", "b", cluster="north")
    tags.create("mine")
    with transaction.atomic():
        upload(Upload("a", "south"))
        waiting = in_thread(lambda: assignments.assign("mine", ["a", "b"], []))
        until_blocked()
    assert done(waiting) == {"added": 2, "removed": 0, "unknown": []}
    assert carriers("mine") == {"a", "b"}
