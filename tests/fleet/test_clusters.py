"""Clusters made, renamed and deleted."""

from __future__ import annotations

import pytest
from django.db import connection

from tagmill.errors import AlreadyExists, Invalid, NotFound, StillInUse
from tagmill.fleet import clusters, ingest
from tagmill.fleet.models import Cluster, Node, Partition
from tagmill.fleet.uploads import Upload
from tagmill.rebuilds import leases
from tagmill.rebuilds.models import Lease
from tagmill.tags import assign, tags
from tagmill.tags.models import Match, MatchChange
from tests.fleet.support import (
    HAS_GPU,
    a_worker,
    carriers,
    complete,
    evaluated,
    jobs,
    lease_one,
    put,
    tag,
    the_partition,
    work,
)

pytestmark = pytest.mark.django_db


def test_names_are_unique_lines_of_text() -> None:
    north = clusters.create("north")
    clusters.create("south")
    with pytest.raises(AlreadyExists):
        clusters.create("north")
    with pytest.raises(AlreadyExists):
        clusters.rename(north, "south")
    for name in ("", " ", "a\nb", "a\0", "x" * 257):
        with pytest.raises(Invalid):
            clusters.create(name)
        with pytest.raises(Invalid):
            clusters.rename(north, name)
    clusters.rename(north, "far north")
    assert set(Cluster.objects.values_list("name", flat=True)) == {"far north", "south"}


def test_a_cluster_with_a_node_stays() -> None:
    north = clusters.create("north")
    put("a")
    with pytest.raises(StillInUse):
        clusters.delete(north)
    assert Cluster.objects.exists()


def test_an_emptied_cluster_goes_with_its_tombstones_matches_and_jobs() -> None:
    north, south = clusters.create("north"), clusters.create("south")
    put("a", "b", cluster="north")
    put("c", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    tags.create("mine")
    assign.assign("mine", ["a", "c"], [])
    work(a_worker())
    ingest.delete("a")
    ingest.store([Upload("b", "south")])
    gone = north.partitions.get().id
    assert (gone, "todo") in jobs()
    clusters.delete(north)
    # The foreign keys are checked when the transaction ends.
    connection.check_constraints()
    assert Partition.objects.get().cluster == south
    assert (gone, "todo") not in jobs() and (gone, "cancelled") in jobs()
    assert not Node.objects.filter(system_id="a").exists()
    assert MatchChange.objects.filter(partition_id=gone).exists()
    work(a_worker(name="again"))
    assert carriers("gpu") == {"b", "c"} and carriers("mine") == {"c"}
    with pytest.raises(NotFound):
        clusters.delete(north)


def test_a_lease_on_a_deleted_cluster_ends_and_its_result_is_stale() -> None:
    north = clusters.create("north")
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    answer, lease = lease_one(worker)
    result = evaluated(answer, lease)
    ingest.delete("a")
    clusters.delete(north)
    connection.check_constraints()
    assert not Lease.objects.exists()
    assert {status for _, status in jobs()} == {"aborted", "cancelled"}
    (outcome,) = complete(worker, result).results
    assert (outcome.outcome, outcome.applied, outcome.stale) == ("late", 0, 1)
    assert not Match.objects.exists()
    assert leases.lease(worker, 8, []).leases == []


def test_a_tag_that_waits_only_for_a_deleted_cluster_is_published_by_the_sweep() -> None:
    from tagmill.rebuilds import maintenance

    north = clusters.create("north")
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    ingest.delete("a")
    assert the_partition().node_count == 0
    clusters.delete(north)
    maintenance.sweep()
    assert tag("gpu").pending_expression is None
    assert tag("gpu").rebuilds.get().state == "complete"
