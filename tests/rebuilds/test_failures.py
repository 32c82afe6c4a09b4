"""Which failed evaluations count, and when an expression has failed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tagmill.fleet import clusters
from tagmill.matches.models import Expression
from tagmill.tags import failures, tags
from tagmill.work import leases
from tagmill.work.models import Worker
from tagmill_wire.messages import Failure
from tests.support.fleet import ANY, HAS_GPU, north
from tests.support.workers import a_worker, complete, evaluated, fail, lease_one, result, work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _north(db: None, configure: Callable[..., None]) -> None:
    """Two partitions, and one expression that waits for both."""
    configure(partition_slots=8, evaluation_attempts=2)
    north(*"abcdefghij")
    tags.create("gpu", definition=HAS_GPU)


def expression(text: str = HAS_GPU) -> Expression:
    return Expression.objects.get(text=text)


def fail_at_once(worker: Worker, count: int) -> None:
    """Lease so many partitions, and then fail all of them, each in a completion of its own."""
    taken = [lease_one(worker)[1] for _ in range(count)]
    for lease in taken:
        said = [Failure(item.expression, "too slow") for item in lease.expressions]
        complete(worker, result(lease, {}, failures=said))


def test_two_workers_that_fail_an_expression_are_believed() -> None:
    one, two = a_worker(name="one"), a_worker(name="two")
    fail(one)
    assert expression().failed_at is None
    fail(two)
    assert expression().failed_at is not None


def test_the_only_worker_is_believed_at_its_second_lease() -> None:
    worker = a_worker()
    fail(worker)
    assert expression().failed_at is None
    fail(worker)
    assert expression().failed_at is not None
    assert leases.grant(worker, 8, []).answer.leases == []


def test_one_worker_of_several_is_not_believed_at_its_second_lease() -> None:
    ill, healthy = a_worker(name="ill"), a_worker(name="healthy")
    fail(ill)
    fail(ill)
    assert expression().failed_at is None
    work(healthy)
    assert tags.update("gpu", comment="").expression is not None


def test_one_worker_of_several_is_believed_in_the_end() -> None:
    ill, _ = a_worker(name="ill"), a_worker(name="never leases")
    for _ in range(2 * failures.PATIENCE):
        assert expression().failed_at is None
        fail(ill)
    assert expression().failed_at is not None


def test_a_worker_of_another_cluster_does_not_make_this_one_doubtful() -> None:
    worker = a_worker(name="north")
    a_worker(clusters.create("south"), name="south")
    fail(worker)
    fail(worker)
    assert expression().failed_at is not None


def test_two_leases_that_a_worker_had_when_it_broke_count_once() -> None:
    worker = a_worker()
    fail_at_once(worker, 2)
    assert expression().attempts == 1
    fail(worker)
    assert expression().failed_at is not None


def test_a_failure_of_what_the_lease_did_not_name_does_not_count() -> None:
    """A worker of one cluster takes nothing away from another."""
    worker = a_worker()
    work(worker)
    tags.create("any", definition=ANY)
    for _ in range(2):
        _, lease = lease_one(worker)
        assert [item.expression for item in lease.expressions] == [expression(ANY).id]
        said = [Failure(expression().id, "I say so"), Failure((1 << 63) - 1, "there is none")]
        complete(worker, result(lease, {}, failures=said))
    assert expression().attempts == 0
    work(worker)


def test_a_failure_beside_a_result_does_not_count() -> None:
    worker = a_worker()
    answer, lease = lease_one(worker)
    good = evaluated(answer, lease)
    said = replace(good, failures=[Failure(expression().id, "too slow")])
    complete(worker, said)
    assert expression().attempts == 0


def test_a_failure_of_a_lease_of_another_partition_does_not_count() -> None:
    worker = a_worker()
    first, second = (lease_one(worker)[1] for _ in range(2))
    said = result(first, {}, failures=[Failure(expression().id, "too slow")])
    complete(worker, replace(said, partition=second.partition))
    assert expression().attempts == 0


def test_asking_again_forgets_who_failed() -> None:
    worker = a_worker()
    fail(worker)
    tags.create("same", definition=HAS_GPU)
    assert (expression().attempts, expression().failed_by) == (0, [])
