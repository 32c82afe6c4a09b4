"""Workers that join, leave, die and fall silent: who owns what then, and who is leased it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tagmill import locks
from tagmill.errors import Invalid, WorkerGone
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Partition
from tagmill.flows import ingest, maintenance
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.work import leases, membership, workers
from tagmill.work.models import Lease, Placement, Worker, WorkerToken
from tagmill_wire.messages import Register, Share, ShareRequest
from tests.support.fleet import put, stale_partitions
from tests.support.sql import execute
from tests.support.threads import at_once, done, in_thread, until_blocked
from tests.support.workers import a_worker

pytestmark = pytest.mark.django_db

GIB = 2**30


@pytest.fixture(autouse=True)
def partitions(db: None, configure: Callable[..., None]) -> list[int]:
    """Ten, each of which waits for a tag."""
    configure(partition_slots=8)
    clusters.create("north")
    return stale_partitions(10)


def told(worker: Worker, room: int = GIB, *, ready: bool = False, former: Any = None) -> set[int]:
    answer = asked(worker, room, ready=ready, former=former)
    assert answer.epoch == membership.epoch()
    return set(answer.partitions)


def asked(worker: Worker, room: int = GIB, *, ready: bool = False, former: Any = None) -> Share:
    named = None if former is None else str(former.uuid)
    return membership.share(worker, ShareRequest(str(worker.uuid), room, ready, named))


def joined(name: str, *where: Cluster, room: int = GIB) -> Worker:
    """One that has warmed its share."""
    worker = a_worker(*where, name=name)
    told(worker, room)
    told(worker, room, ready=True)
    return worker


def counting() -> dict[int, int]:
    """The worker that is preferred for each partition."""
    return {
        partition: worker
        for item in Placement.objects.all()
        for partition, worker in zip(item.partitions, item.counting, strict=True)
    }


def first(worker: Worker, *holds: int) -> list[int]:
    """What it is offered, the first ones first; nothing is leased."""
    epoch = membership.epoch()
    spent = membership.SpentQuotas(False, False, False, str(worker.incarnation), epoch)
    owns = membership.owned(worker.id, spent)
    return [item.partition for item in leases.queue.candidates(None, holds, owns.first(holds))]


def silence(*found: Worker, seconds: int = 3600) -> None:
    execute(
        "UPDATE worker SET last_heartbeat = now() - make_interval(secs => %s) WHERE id = ANY(%s)",
        [seconds, [item.id for item in found]],
    )


# -- coming ----------------------------------------------------------------------------------------


def test_the_first_worker_owns_everything_at_once(partitions: list[int]) -> None:
    worker = a_worker()
    assert told(worker) == set(partitions)
    assert counting() == dict.fromkeys(partitions, worker.id)


def test_one_that_joins_is_told_its_share_and_counts_when_it_is_warm(
    partitions: list[int],
) -> None:
    old, new = joined("old"), a_worker(name="new")
    share = told(new)
    assert len(share) == 5
    assert set(counting().values()) == {old.id}
    assert told(old, ready=True) == set(partitions) - share
    assert told(new, ready=True) == share
    assert {key for key, worker in counting().items() if worker == new.id} == share


def test_a_worker_is_leased_what_it_owns_then_what_it_holds(partitions: list[int]) -> None:
    one, two = joined("one"), joined("two")
    mine = [key for key in partitions if counting()[key] == two.id]
    theirs = [key for key in partitions if counting()[key] == one.id]
    assert first(two, theirs[3]) == [*mine, theirs[3], *theirs[:3], *theirs[4:]]
    leased = leases.grant(two, 2, []).answer.leases
    assert [item.partition for item in leased] == mine[:2]


def test_who_comes_fetches_its_share_first_and_who_gives_it_away_no_more_of_it(
    partitions: list[int],
) -> None:
    """As at the start of a site: its workers come one after the other, and hold nothing."""
    old, new = joined("old"), a_worker(name="new")
    share = told(new)
    rest = [key for key in partitions if key not in share]
    assert first(new) == [*sorted(share), *rest]
    assert first(old) == [*rest, *sorted(share)]
    held = max(share)
    assert first(old, held) == [held, *rest, *sorted(share - {held})]


def test_whoever_is_idle_is_leased_anything(partitions: list[int]) -> None:
    joined("owner")
    other = a_worker(name="other")
    leased = {item.partition for _ in range(9) for item in leases.grant(other, 9, []).answer.leases}
    assert leased == set(partitions)


def test_what_was_overtaken_is_not_left_behind_by_what_is_owned(partitions: list[int]) -> None:
    worker = joined("one")
    joined("two")
    assert first(worker)[:10] != partitions
    execute("SELECT setval(pg_get_serial_sequence('procrastinate_jobs', 'id'), 1000000)")
    put(*(f"more{number}" for number in range(8)))
    assert first(worker)[:10] == partitions


def test_workers_of_other_clusters_own_nothing_here(partitions: list[int]) -> None:
    south = clusters.create("south")
    put("s1", cluster="south")
    there = joined("there", south)
    (theirs,) = Partition.objects.filter(cluster=south).values_list("id", flat=True)
    assert counting() == {theirs: there.id}
    everywhere = joined("everywhere")
    assert set(counting()) == {theirs, *partitions}
    assert {counting()[key] for key in partitions} == {everywhere.id}


def test_new_partitions_get_owners_and_those_that_went_lose_theirs(partitions: list[int]) -> None:
    worker = joined("one")
    put(*(f"more{number}" for number in range(8)))
    assert maintenance.place()
    assert set(counting()) == set(Partition.objects.values_list("id", flat=True))
    assert not maintenance.place()
    delete_cluster(clusters.create("south"))
    assert set(counting().values()) == {worker.id}


def test_a_cluster_goes_with_its_placement() -> None:
    south = clusters.create("south")
    put("s1", cluster="south")
    joined("there", south)
    ingest.delete("s1")
    delete_cluster(south)
    assert not Placement.objects.filter(cluster=south.id).exists()


@pytest.mark.parametrize("field", ["room", "former"])
def test_nonsense_is_refused(field: str) -> None:
    worker = a_worker()
    bad: dict[str, Any] = {"room": -1} if field == "room" else {"room": 1, "former": "x"}
    with pytest.raises(Invalid) as raised:
        membership.share(worker, ShareRequest(str(worker.uuid), **bad))
    assert raised.value.extra["field"] == field


def test_a_worker_of_another_incarnation_is_gone() -> None:
    worker = joined("one")
    execute("UPDATE incarnation SET uuid = gen_random_uuid()")
    with pytest.raises(WorkerGone):
        told(worker)
    # Nobody of it is left to own anything.
    assert maintenance.place()
    assert counting() == {}


# -- going -----------------------------------------------------------------------------------------


def test_one_that_leaves_moves_only_its_share(partitions: list[int]) -> None:
    one, two, three = joined("one"), joined("two"), joined("three")
    before = counting()
    assert told(two, 0) == set()
    moved = {key for key, worker in counting().items() if worker != before[key]}
    assert moved == {key for key, worker in before.items() if worker == two.id}
    assert set(counting().values()) == {one.id, three.id}


def test_one_that_dies_moves_only_its_share(partitions: list[int]) -> None:
    one, two, three = joined("one"), joined("two"), joined("three")
    before = counting()
    silence(two)
    assert maintenance.place()
    moved = {key for key, worker in counting().items() if worker != before[key]}
    assert moved == {key for key, worker in before.items() if worker == two.id}
    assert set(counting().values()) == {one.id, three.id}
    assert not maintenance.place()


def test_a_token_that_is_revoked_ends_what_its_workers_own(partitions: list[int]) -> None:
    one, _ = joined("one"), joined("two")
    WorkerToken.objects.filter(name="two").update(revoked_at="2026-01-01T00:00Z")
    assert maintenance.place()
    assert set(counting().values()) == {one.id}


def test_nothing_moves_for_a_minute_where_more_than_half_are_silent(
    partitions: list[int],
) -> None:
    one, two, three = joined("one"), joined("two"), joined("three")
    before = counting()
    silence(one, two)
    assert not maintenance.place()
    assert counting() == before
    # Also not for who comes meanwhile, or because the silent were forgotten.
    told(a_worker(name="four"))
    workers.prune()
    assert not maintenance.place()
    assert counting() == before
    execute("UPDATE placement SET silent_since = silent_since - interval '61 seconds'")
    assert maintenance.place()
    assert one.id not in counting().values() and two.id not in counting().values()
    assert Placement.objects.get().silent_since is None
    assert {key for key, worker in counting().items() if worker == three.id} >= {
        key for key, worker in before.items() if worker == three.id
    }


def test_whoever_speaks_again_in_time_loses_nothing(partitions: list[int]) -> None:
    one, two = joined("one"), joined("two")
    joined("three")
    before = counting()
    silence(one, two)
    maintenance.place()
    for worker in (one, two):
        leases.heartbeat(worker, [])
    assert not maintenance.place()
    assert counting() == before
    assert Placement.objects.get().silent_since is None


@pytest.mark.parametrize("is_held", [False, True])
def test_a_worker_that_starts_again_has_its_former_place(
    partitions: list[int], is_held: bool
) -> None:
    """Also while nothing else moves."""
    one, two, three = joined("one"), joined("two"), joined("three")
    before = counting()
    if is_held:
        silence(one, two, three)
        maintenance.place()
    again = workers.register(two.token, Register("two", "lxml", "1"))
    share = told(again, former=two)
    assert share == {key for key, worker in before.items() if worker == two.id}
    assert counting() == {
        key: again.id if worker == two.id else worker for key, worker in before.items()
    }
    # A stranger's place is not to be had.
    stranger = a_worker(name="stranger")
    told(stranger, former=one)
    assert one.id in counting().values()


def test_what_a_worker_had_leased_before_it_started_again_waits_for_no_deadline(
    partitions: list[int],
) -> None:
    one, two = joined("one"), joined("two")
    ours, theirs = leases.grant(one, 3, []).answer, leases.grant(two, 2, []).answer
    again = workers.register(one.token, Register("one", "lxml", "1"))
    assert leases.end_former(again, str(one.uuid)) == len(ours.leases) == 3
    assert leases.end_former(again, str(one.uuid)) == leases.end_former(again, str(again.uuid)) == 0
    kept = {str(uuid) for uuid in Lease.objects.values_list("uuid", flat=True)}
    assert kept == {item.lease for item in theirs.leases}
    # Others get them at once.
    granted = [leases.grant(two, 10, []).answer.leases for _ in range(9)]
    taken = {item.partition for items in granted for item in items}
    assert {item.partition for item in ours.leases} <= taken
    # A stranger's are not to be had.
    assert leases.end_former(a_worker(name="stranger"), str(two.uuid)) == 0


# -- what it costs, and what waits for what --------------------------------------------------------


def test_a_lease_reads_the_placement_once_an_epoch(partitions: list[int]) -> None:
    worker = joined("one")

    def statements() -> list[str]:
        with CaptureQueriesContext(connection) as found:
            leases.grant(worker, 0, [])
        return [item["sql"] for item in found.captured_queries if "FROM placement" in item["sql"]]

    # The epoch is a column of what begins every lease.
    assert len(statements()) == 2
    assert len(statements()) == 1
    joined("two")
    assert len(statements()) == 2
    assert len(statements()) == 1


def test_epochs_only_grow_and_name_what_changed(partitions: list[int]) -> None:
    one = joined("one")
    seen = [membership.epoch()]
    for step in (lambda: joined("two"), lambda: told(one, 0), lambda: told(one)):
        step()
        seen.append(membership.epoch())
    assert seen == sorted(set(seen))
    told(one)
    assert membership.epoch() == seen[-1]
    # It came again, and has not warmed its share.
    assert sorted(found[2:] for found in membership.counts()) == [(5, 0), (5, 10)]


@pytest.mark.django_db(transaction=True)
def test_workers_that_join_at_once_own_everything_between_them(
    partitions: list[int], no_jobs: None
) -> None:
    new = [a_worker(name=str(number)) for number in range(5)]
    at_once(*(lambda worker=worker: asked(worker, ready=True) for worker in new))
    assert set(counting()) == set(partitions)
    loads = [list(counting().values()).count(worker.id) for worker in new]
    assert loads == [2] * 5


@pytest.mark.django_db(transaction=True)
def test_what_was_read_before_the_lock_is_read_again_under_it(
    partitions: list[int], no_jobs: None
) -> None:
    one, two = joined("one"), joined("two")
    silence(two)
    with transaction.atomic():
        locks.membership()
        looking = in_thread(maintenance.place)
        until_blocked()
        # It speaks again before the other has the lock.
        execute("UPDATE worker SET last_heartbeat = now()")
    assert done(looking) is False
    assert set(counting().values()) == {one.id, two.id}
