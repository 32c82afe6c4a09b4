"""Leases, completions and the queue while others write."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.db import transaction

from tagmill.fleet import clusters
from tagmill.flows import ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.matches import staleness
from tagmill.tags import tags
from tagmill.work import leases, queue, workers
from tagmill.work.models import Lease
from tests.support.fleet import BARE, HAS_GPU, carriers, put, stale_partitions, the_partition
from tests.support.sql import execute
from tests.support.threads import at_once, done, in_thread, until_blocked
from tests.support.workers import a_worker, complete, evaluated, jobs, lease_one, work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _north(no_jobs: None, configure: Callable[..., None]) -> None:
    configure(partition_slots=8)
    clusters.create("north")


def test_many_that_defer_the_same_partitions_make_one_job_each() -> None:
    ids = stale_partitions(12)
    execute("DELETE FROM procrastinate_jobs")

    def defer(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(4):
            queue.defer_partitions(chance.sample(ids, len(ids) - seed % 3))

    at_once(*(lambda seed=seed: defer(seed) for seed in range(8)))
    assert sorted(jobs()) == [(item, "todo") for item in ids]


def test_deferring_leasing_and_completing_at_once_leaves_nothing_stale() -> None:
    stale_partitions(6)
    two = [a_worker(name=f"w{i}") for i in range(2)]

    def upload(seed: int) -> None:
        chance = random.Random(seed)
        for i in range(8):
            document = f"<list><node class='display'/><i>{i}</i></list>".encode()
            put(*(f"n{n}" for n in chance.sample(range(48), 6)), xml=document)

    at_once(
        *(lambda seed=seed: upload(seed) for seed in range(2)),
        *(lambda worker=worker: work(worker) for worker in two),
    )
    work(two[0])
    assert staleness.stale_partitions() == []
    assert not jobs("todo") and not jobs("doing") and not Lease.objects.exists()
    assert len(carriers("gpu")) == 48


def test_an_upload_that_commits_while_a_lease_is_completed_is_evaluated_too() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    leased = lease_one(worker)
    said = evaluated(*leased)
    with transaction.atomic():
        put("a", xml=BARE)
        # The completion waits for the partition, and then sees that it has changed.
        other = in_thread(lambda: complete(worker, said))
        until_blocked()
    assert done(other).results[0].outcome == "applied"
    assert jobs("todo") == [(the_partition().id, "todo")]
    work(worker)
    assert carriers("gpu") == set()


def test_an_upload_that_waits_for_a_completion_leaves_a_job() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    leased = lease_one(worker)
    with transaction.atomic():
        complete(worker, evaluated(*leased))
        other = in_thread(lambda: put("a", xml=BARE))
        until_blocked()
    done(other)
    assert jobs("todo") == [(the_partition().id, "todo")]
    work(worker)
    assert carriers("gpu") == set()


def test_a_job_is_not_leased_before_the_change_that_it_is_for_is_seen() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    with transaction.atomic():
        # There is a job already; this change is to be seen by whoever leases it.
        put("a", xml=BARE)
        assert done(in_thread(lambda: leases.grant(worker, 1, []).answer.leases)) == []
    _, lease = lease_one(worker)
    assert lease.rev == 2


def test_workers_that_lease_at_once_never_share_a_partition() -> None:
    ids = stale_partitions(12)
    four = [a_worker(name=f"w{i}") for i in range(4)]
    found = at_once(
        *(lambda worker=worker: leases.grant(worker, 64, ids).answer for worker in four)
    )
    leased = [item.partition for answer in found for item in answer.leases]
    assert len(leased) == len(set(leased)) >= 2
    assert Lease.objects.count() == len(jobs("doing")) == len(leased)


def test_one_job_is_finished_once_when_two_complete_it() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    leased = lease_one(worker)
    said = evaluated(*leased)
    found = at_once(*(lambda: complete(worker, said) for _ in range(4)))
    outcomes = sorted(answer.results[0].outcome for answer in found)
    assert outcomes == ["applied", "late", "late", "late"]
    assert sum(answer.results[0].applied for answer in found) == 1
    assert jobs() == [(the_partition().id, "succeeded")]


def test_a_heartbeat_locks_leases_in_the_order_of_completions() -> None:
    ids = stale_partitions(6)
    worker = a_worker()
    answer = leases.grant(worker, 3, []).answer
    assert len(answer.leases) == 3
    # The uuids of the leases are in the opposite order.
    names = sorted((str(uuid4()) for _ in range(3)), reverse=True)
    for partition, name in zip(ids, names, strict=False):
        execute("UPDATE lease SET uuid = %s WHERE partition_id = %s", [name, partition])
    with transaction.atomic():
        execute("SELECT FROM lease WHERE partition_id = %s FOR UPDATE", [ids[0]])
        other = in_thread(lambda: leases.heartbeat(worker, names))
        until_blocked()
        # It waits for the first, and so holds none of the others.
        execute("SELECT FROM lease FOR UPDATE NOWAIT")
    assert done(other) == []


def test_a_silent_worker_that_leases_at_this_moment_is_not_forgotten() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    execute("UPDATE worker SET last_heartbeat = now() - interval '1 hour'")
    with transaction.atomic():
        answer, lease = lease_one(worker)
        assert done(in_thread(workers.prune)) == 0
    assert complete(worker, evaluated(answer, lease)).results[0].outcome == "applied"


def test_the_reaper_leaves_a_lease_that_is_being_completed() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    leased = lease_one(worker)
    execute("UPDATE lease SET deadline = now() - interval '1 second'")
    with transaction.atomic():
        complete(worker, evaluated(*leased))
        assert done(in_thread(leases.reap)) == 0
    assert jobs() == [(the_partition().id, "succeeded")]


def test_a_lease_is_given_up_also_while_a_heartbeat_extends_it() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    _, lease = lease_one(worker)
    with transaction.atomic():
        assert leases.heartbeat(worker, [lease.lease]) == []
        other = in_thread(lambda: leases.give_up(worker, [lease.lease], "draining"))
        until_blocked()
    done(other)
    assert not Lease.objects.exists()
    assert [status for _, status in jobs()] == ["aborted", "todo"]


def test_a_completion_that_waits_for_the_reaper_is_late() -> None:
    put("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    leased = lease_one(worker)
    execute("UPDATE lease SET deadline = now() - interval '1 second'")
    with transaction.atomic():
        assert leases.reap() == 1
        other = in_thread(lambda: complete(worker, evaluated(*leased)))
        until_blocked()
    assert done(other).results[0].outcome == "late"
    assert carriers("gpu") == {"a"}
    assert [status for _, status in jobs()] == ["aborted", "todo"]


def test_a_cluster_deleted_while_a_tag_is_made_does_not_break_the_tag() -> None:
    south = clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    ingest.delete("b")
    with transaction.atomic():
        tags.create("gpu", definition=HAS_GPU)
        other = in_thread(lambda: delete_cluster(south))
        until_blocked()
    done(other)
    with transaction.atomic():
        delete_cluster(clusters.create("east"))
    work(a_worker())
    assert carriers("gpu") == {"a"}


def test_a_tag_made_while_a_cluster_is_deleted_does_not_break() -> None:
    south = clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    ingest.delete("b")
    with transaction.atomic():
        delete_cluster(south)
        other = in_thread(lambda: tags.create("gpu", definition=HAS_GPU))
        until_blocked()
    done(other)
    work(a_worker())
    assert carriers("gpu") == {"a"}
