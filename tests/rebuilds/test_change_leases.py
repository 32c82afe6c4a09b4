"""Changes in the queue: ahead of rebuilds, for what they changed alone, and never more than their
share."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
import zstandard
from django.db import connection
from django.db.models.functions import Now
from msgspec import UNSET, UnsetType

from tagmill.fleet import batches, changes
from tagmill.fleet.models import Partition
from tagmill.flows import ingest
from tagmill.matches import staleness
from tagmill.tags import rebuilds, tags
from tagmill.work import leases, policy
from tagmill.work.models import Worker
from tagmill.work.policy import Speed
from tagmill_wire.messages import Batch, Changes, LeaseAnswer, load
from tests.support.fleet import ANY, BARE, GPU, HAS_GPU, north, put
from tests.support.sql import execute
from tests.support.workers import a_worker, complete, evaluated, jobs, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def ids(db: None, configure: Callable[..., None]) -> list[int]:
    """Six partitions that are fresh for two tags; their nodes are n0 to n47, in order."""
    configure(partition_slots=8)
    north(*(f"n{number}" for number in range(48)))
    tags.create("gpu", definition=HAS_GPU)
    tags.create("any", definition=ANY)
    work(a_worker(name="first"))
    Worker.objects.all().delete()
    return list(Partition.objects.order_by("id").values_list("id", flat=True))


def leased(worker: Worker, most: int = 1, *holds: int) -> LeaseAnswer:
    return leases.grant(worker, most, holds).answer


def finish(worker: Worker, answer: LeaseAnswer) -> None:
    complete(worker, *(evaluated(answer, lease) for lease in answer.leases))


def named(answer: LeaseAnswer) -> list[tuple[int, set[int | None]]]:
    """Each leased partition with the bases of its expressions."""
    return [
        (lease.partition, {item.base_rev for item in lease.expressions}) for lease in answer.leases
    ]


def paid(worker: Worker) -> None:
    Worker.objects.filter(id=worker.id).update(change_quota_until="2000-01-01T00:00Z")


def in_debt(worker: Worker) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE worker SET change_quota_until = now() + interval '1 hour'")


def test_a_change_comes_before_a_rebuild_that_waits(ids: list[int]) -> None:
    worker = a_worker()
    rebuilds.request(["gpu", "any"], None)
    finish(worker, leased(worker))
    # It is rebuilt already, and now it changes: all others wait.
    put("n0", xml=BARE)
    paid(worker)
    assert named(leased(worker)) == [(ids[0], {1})]


def test_a_change_raises_a_job_that_waits(ids: list[int]) -> None:
    rebuilds.request(["gpu"], None)
    put("n47", xml=BARE)
    assert sorted(jobs("todo")) == [(item, "todo") for item in ids]
    worker = a_worker()
    paid(worker)
    assert [partition for partition, _ in named(leased(worker))] == [ids[5]]


def test_after_a_forced_rebuild_a_change_costs_what_it_changed(ids: list[int]) -> None:
    worker = a_worker()
    rebuilds.request(["any"], None)
    put("n0", xml=BARE)
    paid(worker)
    answer = leased(worker)
    # `any` has no base, and needs every node: it waits its turn.
    assert named(answer) == [(ids[0], {1})]
    assert [item.text for item in answer.expressions.values()] == [HAS_GPU]
    finish(worker, answer)
    in_debt(worker)
    answer = leased(worker, 1, *ids[1:])
    assert [lease.partition for lease in answer.leases] == [ids[1]]
    finish(worker, answer)
    work(worker)
    assert staleness.stale_partitions() == []


def test_a_change_that_is_given_back_is_still_one(ids: list[int]) -> None:
    worker = a_worker()
    rebuilds.request(["gpu"], None)
    put("n40", xml=BARE)
    paid(worker)
    (lease,) = leased(worker).leases
    leases.give_up(worker, [lease.lease], "draining")
    # Ahead of the five that the rebuild made wait before it.
    assert named(leased(worker)) == [(ids[5], {lease.expressions[0].base_rev})]


def test_changes_that_never_stop_leave_a_rebuild_its_share(ids: list[int]) -> None:
    worker = a_worker()
    work(worker)
    rebuild = rebuilds.request(None, None)
    for number in range(60):
        for node in range(0, 48, 8):
            put(f"n{node}", xml=f"<list><i>{number}</i></list>".encode())
        # It reads ahead: the next lease is asked for before the last one is completed.
        first, second = leased(worker), leased(worker)
        finish(worker, first)
        finish(worker, second)
        rebuild.refresh_from_db()
        if rebuild.state == "complete":
            break
    assert rebuild.state == "complete"


def test_after_changes_rebuilds_come_first(ids: list[int]) -> None:
    worker = a_worker()
    rebuilds.request(["any"], None)
    put("n0", xml=BARE)
    in_debt(worker)
    # Everything that is stale in the partition, and so the change, too.
    assert named(leased(worker)) == [(ids[0], {None, 1})]
    put("n8", xml=BARE)
    assert named(leased(worker)) == [(ids[1], {None, 1})]


def test_a_lease_of_changes_is_owed_to_rebuilds(ids: list[int]) -> None:
    worker = a_worker()
    put("n0", xml=BARE)
    answer = leased(worker)
    execute("UPDATE lease SET leased_at = now() - interval '10 seconds'")
    finish(worker, answer)
    worker.refresh_from_db()
    assert Worker.objects.filter(change_quota_until__gt=Now()).exists()
    assert worker.preview_quota_until < worker.change_quota_until


def test_without_rebuilds_a_debt_stops_no_change(ids: list[int]) -> None:
    worker = a_worker()
    in_debt(worker)
    put("n0", xml=BARE)
    assert named(leased(worker)) == [(ids[0], {1})]


def test_what_nobody_holds_does_not_starve(ids: list[int]) -> None:
    worker = a_worker()
    held = ids[:2]
    taken: list[int] = []
    put("n47", xml=BARE)
    for number in range(40):
        for node in (0, 8):
            put(f"n{node}", xml=f"<list><i>{number}</i></list>".encode())
        answer = leased(worker, 1, *held)
        taken += [lease.partition for lease in answer.leases]
        finish(worker, answer)
        if ids[5] in taken:
            break
    assert ids[5] in taken and len(taken) > 4


# -- what a lease brings along ---------------------------------------------------------------------


def brought(worker: Worker, ids: list[int], *, asked: bool = True) -> list[Changes | UnsetType]:
    """With the leases of all that has changed, by partition; then they are completed."""
    answer = leases.grant(worker, 64, ids, brings_changes=asked).answer
    finish(worker, answer)
    return [lease.changes for lease in sorted(answer.leases, key=lambda lease: lease.partition)]


def test_a_lease_for_changes_brings_the_page_that_would_be_fetched(ids: list[int]) -> None:
    worker = a_worker()
    ingest.delete("n9")
    put("n0", "n3", "n8", xml=BARE)
    pages = [batches.read(partition, 1, None, 1024, 1 << 20) for partition in ids[:2]]
    for page, found in zip(pages, brought(worker, ids), strict=True):
        assert isinstance(found, Changes)
        assert load(Batch, zstandard.decompress(base64.b64decode(found.data))) == page
        assert (found.since, found.rev) == (1, page.rev)
    assert [[node.slot for node in page.nodes] for page in pages] == [[0, 3], [0, 1]]


def test_it_brings_nothing_where_much_has_changed_or_everything_is_needed(
    ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = a_worker()
    monkeypatch.setattr(changes, "MAX_NODES", 2)
    put("n0", "n1", "n2", "n8", "n9", xml=BARE)
    many, few = brought(worker, ids)
    assert many is UNSET and isinstance(few, Changes)
    # The documents of the first partition alone are as many bytes as there may be.
    monkeypatch.setattr(changes, "MAX_BYTES", 2 * len(GPU))
    put("n0", "n1", "n8", xml=GPU)
    first, second = brought(worker, ids)
    assert isinstance(first, Changes) and second is UNSET
    put("n0", xml=BARE)
    assert brought(worker, ids, asked=False) == [UNSET]
    tags.create("bare", definition="//list")
    assert set(brought(worker, ids)) == {UNSET}


# -- how much of it goes together ------------------------------------------------------------------


QUICK, SLOW = Speed(1e-4, 1e-6), Speed(1e-4, 1e-2)


def test_changes_that_take_nothing_go_to_one_worker(ids: list[int]) -> None:
    worker = a_worker()
    a_worker(name="other")
    put("n0", "n1", *(f"n{8 * number}" for number in range(1, 6)), xml=BARE)
    # A worker that says nothing of its speed may be a slow one.
    for speed, count in ((None, 2), (SLOW, 2), (QUICK, 6)):
        answer = leases.grant(worker, 64, [], speed).answer
        assert len(answer.leases) == count
        leases.give_up(worker, [lease.lease for lease in answer.leases], "counted")
    # A forced rebuild of as many partitions is divided, however quick the worker.
    answer = leases.grant(worker, 64, [], QUICK).answer
    finish(worker, answer)
    rebuilds.request(["gpu"], None)
    assert len(leases.grant(worker, 64, [], QUICK).answer.leases) == 2


def test_where_much_has_changed_it_is_divided(ids: list[int]) -> None:
    worker = a_worker()
    a_worker(name="other")
    put(*(f"n{number}" for number in range(48)), xml=BARE)
    # Eight nodes of each take half of what is not divided.
    quick = Speed(policy.GRAIN_SECONDS / 16, 0.0)
    assert len(leases.grant(worker, 64, [], quick).answer.leases) == 2
    quicker = Speed(policy.GRAIN_SECONDS / 33, 0.0)
    assert len(leases.grant(worker, 64, [], quicker).answer.leases) == 4
