"""Clusters made, renamed and deleted."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from django.db import connection

from tagmill.errors import AlreadyExists, Invalid, NotFound, StillInUse
from tagmill.fleet import clusters
from tagmill.fleet.documents import Upload
from tagmill.fleet.models import Cluster, Node, Partition
from tagmill.flows import ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.matches.models import Match, MatchChange
from tagmill.tags import assignments, tags
from tagmill.work import leases
from tagmill.work.models import Lease
from tests.support.fleet import HAS_GPU, carriers, put, tag, the_partition
from tests.support.workers import a_worker, complete, evaluated, jobs, lease_one, work

NOBODY = UUID(int=7)

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


@pytest.mark.parametrize(
    "name", [str(NOBODY), NOBODY.hex.upper(), f"{{{NOBODY}}}", NOBODY.urn, ".", ".."]
)
def test_a_name_that_means_something_else_is_refused(name: str) -> None:
    north = clusters.create("north")
    with pytest.raises(Invalid, match="must not be"):
        clusters.create(name)
    with pytest.raises(Invalid, match="must not be"):
        clusters.rename(north, name)


def test_a_uuid_means_its_cluster_also_where_an_older_name_is_the_same() -> None:
    first, second = clusters.create("first"), clusters.create("second")
    Cluster.objects.filter(pk=first.pk).update(name=str(second.uuid))
    assert clusters.named(str(second.uuid)) == second
    assert clusters.named(second.uuid.hex) == second
    put("a", cluster=str(second.uuid))
    assert Node.objects.get().partition.cluster == second
    Cluster.objects.filter(pk=first.pk).update(name=str(uuid4()))
    first.refresh_from_db()
    assert clusters.named(first.name) == first


def test_a_cluster_with_a_node_stays() -> None:
    north = clusters.create("north")
    put("a")
    with pytest.raises(StillInUse):
        delete_cluster(north)
    assert Cluster.objects.exists()


def test_an_emptied_cluster_goes_with_its_tombstones_matches_and_jobs() -> None:
    north, south = clusters.create("north"), clusters.create("south")
    put("a", "b", cluster="north")
    put("c", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    tags.create("mine")
    assignments.assign("mine", ["a", "c"], [])
    work(a_worker())
    ingest.delete("a")
    ingest.store([Upload("b", "south")])
    gone = north.partitions.get().id
    assert (gone, "todo") in jobs()
    delete_cluster(north)
    # The foreign keys are checked when the transaction ends.
    connection.check_constraints()
    assert Partition.objects.get().cluster == south
    assert (gone, "todo") not in jobs() and (gone, "cancelled") in jobs()
    assert not Node.objects.filter(system_id="a").exists()
    assert MatchChange.objects.filter(partition_id=gone).exists()
    work(a_worker(name="again"))
    assert carriers("gpu") == {"b", "c"} and carriers("mine") == {"c"}
    with pytest.raises(NotFound):
        delete_cluster(north)


def test_a_lease_on_a_deleted_cluster_ends_and_its_result_is_stale() -> None:
    north = clusters.create("north")
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    answer, lease = lease_one(worker)
    result = evaluated(answer, lease)
    ingest.delete("a")
    delete_cluster(north)
    connection.check_constraints()
    assert not Lease.objects.exists()
    assert {status for _, status in jobs()} == {"aborted", "cancelled"}
    (outcome,) = complete(worker, result).results
    assert (outcome.outcome, outcome.applied, outcome.stale) == ("late", 0, 1)
    assert not Match.objects.exists()
    assert leases.grant(worker, 8, []).answer.leases == []


def test_a_tag_that_waits_only_for_a_deleted_cluster_is_published_by_the_sweep() -> None:
    from tagmill.flows import maintenance

    north = clusters.create("north")
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    ingest.delete("a")
    assert the_partition().node_count == 0
    delete_cluster(north)
    maintenance.sweep()
    assert tag("gpu").pending_expression is None
    assert tag("gpu").rebuilds.get().state == "complete"
