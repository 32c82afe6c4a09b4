"""Partitions that are full of deleted nodes go, and take nothing along that is still wanted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import transaction

from tagmill.fleet import clusters
from tagmill.fleet.models import Node, Partition
from tagmill.flows import full_partitions, ingest, maintenance
from tagmill.tags import rebuilds, tags
from tests.support.fleet import HAS_GPU, carriers, north, put, tag
from tests.support.threads import done, in_thread
from tests.support.workers import a_worker, jobs, lease_one, work

NAMES = [f"n{number}" for number in range(8)]


def numbers() -> list[int]:
    return list(Partition.objects.order_by("number").values_list("number", flat=True))


@pytest.mark.django_db
def test_a_full_partition_without_live_nodes_goes_and_its_number_is_not_taken_twice(
    configure: Callable[..., None],
) -> None:
    configure(partition_slots=8)
    north(*NAMES)
    put("kept")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    rebuild = rebuilds.request(["gpu"], None)
    assert full_partitions.delete_empty() == 0
    for name in NAMES:
        ingest.delete(name)
    maintenance.compact()
    assert numbers() == [2]
    assert not Node.objects.exclude(system_id="kept").exists()
    assert {partition for partition, _ in jobs("todo")} == {Partition.objects.get().id}
    work(a_worker(name="again"))
    rebuild.refresh_from_db()
    assert (rebuild.state, carriers("gpu")) == ("complete", {"kept"})
    # Seven more fill the second; the next is in a third.
    put(*NAMES)
    assert numbers() == [2, 3]
    # An empty partition that is not full is used again, and stays.
    ingest.delete("n7")
    assert (full_partitions.delete_empty(), numbers()) == (0, [2, 3])


@pytest.mark.django_db
def test_full_partitions_with_nodes_keep_no_others_from_going(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(partition_slots=8)
    north(*(f"live{number}" for number in range(8)))
    put(*NAMES)
    for name in NAMES:
        ingest.delete(name)
    monkeypatch.setattr(full_partitions, "MAX_DELETED", 1)
    assert (full_partitions.delete_empty(), numbers()) == (1, [1])


@pytest.mark.django_db
def test_what_waited_for_a_dropped_partition_is_published(configure: Callable[..., None]) -> None:
    configure(partition_slots=8)
    clusters.create("north")
    clusters.create("south")
    put(*NAMES, cluster="south")
    put("kept", cluster="north")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker(clusters.named("north")))
    for name in NAMES:
        ingest.delete(name)
    assert tag("gpu").pending_expression is not None
    full_partitions.delete_empty()
    maintenance.sweep()
    assert tag("gpu").expression is not None and carriers("gpu") == {"kept"}


@pytest.mark.django_db
def test_a_partition_that_is_leased_is_left_for_later(configure: Callable[..., None]) -> None:
    configure(partition_slots=8)
    north(*NAMES)
    tags.create("gpu", definition=HAS_GPU)
    for name in NAMES:
        ingest.delete(name)
    lease_one(a_worker())
    assert (full_partitions.delete_empty(), numbers()) == (0, [1])


@pytest.mark.django_db(transaction=True)
def test_a_partition_that_somebody_writes_to_is_left_for_later(
    configure: Callable[..., None],
) -> None:
    configure(partition_slots=8)
    north(*NAMES)
    for name in NAMES[1:]:
        ingest.delete(name)
    with transaction.atomic():
        ingest.delete("n0")
        assert done(in_thread(full_partitions.delete_empty)) == 0
    assert done(in_thread(full_partitions.delete_empty)) == 1
