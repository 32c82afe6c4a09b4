"""Uploads and deletes, one at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tagmill.errors import AlreadyExists, Invalid, InvalidDocument, NotFound, TooLarge
from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Cluster, Document, Node, Partition
from tagmill.flows import ingest, writes
from tagmill.tags import assignments, tags
from tests.support.fleet import BARE, GPU, carriers, node, put, the_partition

pytestmark = pytest.mark.django_db


def test_many_uploads_raise_their_partition_once(north: Cluster) -> None:
    verdicts = put(*(f"n{i}" for i in range(20)))
    assert {verdict.rev for verdict in verdicts} == {1}
    partition = the_partition()
    assert (partition.rev, partition.next_slot, partition.node_count) == (1, 20, 20)
    assert set(Node.objects.values_list("rev", flat=True)) == {1}


def test_an_unchanged_upload_raises_nothing_and_takes_no_lock(north: Cluster) -> None:
    put("n1")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        (verdict,) = put("n1")
    assert (verdict.outcome, verdict.rev) == ("unchanged", 1)
    assert the_partition().rev == 1
    assert not [q for q in queries if "UPDATE" in q["sql"] or "INSERT" in q["sql"]]


def test_a_change_stamps_its_own_node_only(north: Cluster) -> None:
    put("n1", "n2")
    (verdict,) = put("n2", xml=BARE)
    assert (verdict.outcome, verdict.rev) == ("updated", 2)
    assert (node("n1").rev, node("n2").rev, the_partition().rev) == (1, 2, 2)


def test_a_new_hostname_alone_is_a_change(north: Cluster) -> None:
    put("n1")
    (verdict,) = ingest.store([Upload("n1", hostname="rack-7")])
    assert (verdict.outcome, verdict.rev) == ("updated", 2)
    assert node("n1").hostname == "rack-7"
    assert Document.objects.count() == 1


def test_bad_uploads_are_refused_each_for_itself(north: Cluster) -> None:
    verdicts = ingest.store(
        [
            Upload("good", probes={"lshw": GPU}),
            Upload("broken", probes={"lshw": b"<list>\n  <node></list>"}),
            Upload("no spaces", probes={"lshw": GPU}),
            Upload("lost", cluster="nowhere"),
            Upload("half", probes={"lshw": GPU, "lldp": b"<a"}),
        ]
    )
    outcomes = [verdict.outcome for verdict in verdicts]
    assert outcomes == ["created", "refused", "refused", "refused", "refused"]
    broken = verdicts[1].error
    assert isinstance(broken, InvalidDocument)
    assert broken.extra["line"] == 2 and broken.extra["column"] > 1
    assert isinstance(verdicts[3].error, NotFound)
    assert list(Node.objects.values_list("system_id", flat=True)) == ["good"]
    assert Document.objects.count() == 1


def test_a_system_id_that_comes_twice_is_stored_in_order(north: Cluster) -> None:
    first, second, third = ingest.store(
        [
            Upload("n1", probes={"lshw": GPU}),
            Upload("n1", probes={"lshw": BARE}),
            Upload("n1", probes={"lshw": BARE}),
        ]
    )
    assert [first.outcome, second.outcome, third.outcome] == ["created", "updated", "unchanged"]
    assert (first.rev, second.rev, third.rev) == (1, 2, 2)
    assert Document.objects.get().xml == BARE.decode()


def test_create_refuses_what_is_there_and_update_what_is_not(north: Cluster) -> None:
    put("n1")
    (there,) = ingest.store([Upload("n1")], create=True)
    (missing,) = ingest.store([Upload("n2")], create=False)
    assert isinstance(there.error, AlreadyExists)
    assert isinstance(missing.error, NotFound)
    first, second = ingest.store([Upload("n3"), Upload("n3")], create=True)
    assert first.outcome == "created" and isinstance(second.error, AlreadyExists)


def test_without_a_cluster_a_new_node_needs_the_only_one() -> None:
    (none,) = ingest.store([Upload("n1")])
    assert none.error is not None and none.error.extra["field"] == "cluster"
    clusters.create("north")
    assert ingest.store([Upload("n1")])[0].outcome == "created"
    clusters.create("south")
    (several,) = ingest.store([Upload("n2")])
    assert several.error is not None and "several" in several.error.detail
    assert ingest.store([Upload("n1", hostname="x")])[0].outcome == "updated"


def test_a_deleted_node_leaves_a_tombstone_and_its_slot_is_never_used_again(
    north: Cluster,
) -> None:
    put("n1", "n2")
    ingest.delete("n1")
    grave = Node.objects.get(system_id="n1")
    assert grave.deleted_at is not None and grave.rev == the_partition().rev == 2
    assert bytes(grave.digest) == b""
    assert the_partition().node_count == 1
    assert not Document.objects.filter(node=grave).exists()
    with pytest.raises(NotFound):
        ingest.delete("n1")
    put("n1")
    assert (node("n1").slot, node("n1").rev) == (2, 3)
    assert Node.objects.filter(system_id="n1").count() == 2


def test_a_delete_takes_the_node_off_manual_tags(north: Cluster) -> None:
    put("n1", "n2")
    tags.create("mine")
    assignments.assign("mine", ["n1", "n2"], [])
    ingest.delete("n1")
    assert carriers("mine") == {"n2"}
    put("n1")
    assert carriers("mine") == {"n2"}


def test_a_full_partition_is_followed_by_a_new_one(
    north: Cluster, configure: Callable[..., None]
) -> None:
    configure(partition_slots=8)
    put(*(f"n{i}" for i in range(19)))
    found = Partition.objects.order_by("number").values_list("number", "next_slot", "rev")
    assert list(found) == [(1, 8, 1), (2, 8, 1), (3, 3, 1)]
    ingest.delete("n0")
    put("n99")
    assert (node("n99").partition.number, node("n99").slot) == (3, 3)


def test_partitions_keep_the_capacity_they_were_made_with(
    north: Cluster, configure: Callable[..., None]
) -> None:
    configure(partition_slots=8)
    put("n1")
    configure(partition_slots=16)
    put(*(f"m{i}" for i in range(8)))
    found = Partition.objects.order_by("number").values_list("capacity", "next_slot")
    assert list(found) == [(8, 8), (16, 1)]


def test_a_move_takes_documents_and_manual_tags_along(north: Cluster, south: Cluster) -> None:
    ingest.store([Upload("n1", "north", "web", probes={"lshw": GPU, "lldp": BARE})])
    put("s1", cluster="south")
    tags.create("mine")
    assignments.assign("mine", ["n1"], [])
    old = node("n1")
    (verdict,) = ingest.store([Upload("n1", "south", probes={"lldp": None})])
    moved = node("n1")
    assert (verdict.outcome, verdict.rev) == ("updated", moved.rev)
    assert moved.partition.cluster == south and moved.slot == 1 and moved.id != old.id
    assert (moved.hostname, moved.kind) == ("web", "machine")
    assert [item.probe for item in moved.documents.all()] == ["lshw"]
    old.refresh_from_db()
    assert old.deleted_at is not None and old.rev == 2 and bytes(old.digest) == b""
    assert carriers("mine") == {"n1"}
    assert ingest.store([Upload("n1", "south", probes={"lshw": GPU})])[0].outcome == "unchanged"


def test_deleting_the_last_probe_leaves_a_node_without_documents(north: Cluster) -> None:
    put("n1")
    (verdict,) = ingest.store([Upload("n1", probes={"lshw": None, "lldp": None})])
    assert verdict.outcome == "updated"
    assert bytes(node("n1").digest) == b""
    assert not Document.objects.exists()
    assert ingest.store([Upload("n1", probes={"lshw": None})])[0].outcome == "unchanged"


def probes(first: int, count: int) -> dict[str, bytes | None]:
    return {f"p{number}": BARE for number in range(first, first + count)}


def test_an_upload_has_at_most_16_probes(north: Cluster) -> None:
    (verdict,) = ingest.store([Upload("n1", probes=probes(0, 17))])
    assert isinstance(verdict.error, Invalid)
    assert verdict.error.extra["field"] == "probes"
    assert ingest.store([Upload("n1", probes=probes(0, 16))])[0].outcome == "created"


def test_a_node_has_at_most_16_probes_whatever_the_uploads(north: Cluster, south: Cluster) -> None:
    ingest.store([Upload("n1", "north", probes=probes(0, 15))])
    assert ingest.store([Upload("n1", probes=probes(15, 1))])[0].outcome == "updated"
    for one_more in (
        Upload("n1", probes=probes(16, 1)),
        Upload("n1", "south", probes=probes(16, 1)),
        Upload("n1", probes={"p0": None, **probes(16, 2)}),
    ):
        (verdict,) = ingest.store([one_more])
        assert isinstance(verdict.error, Invalid)
        assert verdict.error.extra["field"] == "probes" and "17" in verdict.error.detail
    assert Document.objects.count() == 16 and node("n1").partition.cluster == north
    assert ingest.store([Upload("n1", probes={"p0": GPU})])[0].outcome == "updated"
    (verdict,) = ingest.store([Upload("n1", probes={"p0": None, **probes(16, 1)})])
    assert verdict.outcome == "updated"


def test_a_node_that_has_too_many_probes_may_lose_some(
    north: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest.store([Upload("n1", probes=probes(0, 16))])
    monkeypatch.setattr(writes, "MAX_PROBES", 8)
    assert ingest.store([Upload("n1", hostname="h", probes={"p0": GPU})])[0].outcome == "updated"
    assert ingest.store([Upload("n1", probes={"p0": None})])[0].outcome == "updated"
    assert ingest.store([Upload("n1", probes=probes(0, 1))])[0].outcome == "refused"


def test_a_document_is_measured_in_utf_8_too(
    north: Cluster, configure: Callable[..., None]
) -> None:
    configure(document_bytes=1024)
    document = "<?xml version='1.0' encoding='iso-8859-1'?><a>" + "\xe9" * 600 + "</a>"
    (verdict,) = ingest.store([Upload("n1", probes={"lshw": document.encode("iso-8859-1")})])
    assert isinstance(verdict.error, TooLarge) and "1,207 bytes in UTF-8" in verdict.error.detail
