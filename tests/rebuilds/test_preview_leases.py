"""Previews in the queue: ahead of other work, alone, and never more than their share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from tagmill.fleet.models import Partition
from tagmill.flows import maintenance
from tagmill.matches.models import Expression, MatchChange
from tagmill.tags import previews, rebuilds, tags
from tagmill.tags.models import Preview
from tagmill.work import leases, policy, queue
from tagmill.work.models import Lease, Worker
from tests.support.fleet import ANY, HAS_GPU, north, put
from tests.support.sql import execute
from tests.support.workers import a_worker, complete, evaluated, fail, jobs, lease_one, work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _north(db: None, configure: Callable[..., None]) -> None:
    """Two partitions."""
    configure(partition_slots=8)
    north(*"abcdefghij")


@pytest.fixture
def user() -> User:
    return User.objects.create_user("ann")


def names(worker: Worker, *holds: int) -> list[set[str]]:
    """What each leased partition is to be evaluated for."""
    answer = leases.grant(worker, 8, holds).answer
    return [
        {answer.expressions[str(item.expression)].text for item in lease.expressions}
        for lease in answer.leases
    ]


def paid(worker: Worker) -> None:
    Worker.objects.filter(id=worker.id).update(preview_quota_until="2000-01-01T00:00Z")


def test_a_lease_for_a_preview_names_nothing_else(user: User) -> None:
    tags.create("gpu", definition=HAS_GPU)
    previews.start(ANY, {}, user, "c")
    worker = a_worker()
    paid(worker)
    assert names(worker) == [{ANY}, {ANY}]


def test_what_else_is_stale_waits_for_the_next_lease(user: User) -> None:
    tags.create("gpu", definition=HAS_GPU)
    made = previews.start(ANY, {}, user, "c")
    worker = a_worker()
    paid(worker)
    work(worker)
    assert previews.progress([made.uuid])[made.uuid].state == "complete"
    assert tags.update("gpu", comment="").expression is not None
    assert queue.job_counts()["todo"] == 0


def test_a_job_that_waits_is_raised_and_none_is_added(user: User) -> None:
    tags.create("gpu", definition=HAS_GPU)
    before = jobs("todo")
    previews.start(ANY, {}, user, "c")
    assert jobs("todo") == before
    found = execute("SELECT DISTINCT priority FROM procrastinate_jobs WHERE status = 'todo'")
    assert found == [(policy.PREVIEW | policy.DEFINITION,)]


def test_after_previews_ordinary_work_comes_first_while_there_is_any(user: User) -> None:
    worker = a_worker()
    previews.start("//node[1]", {}, user, "c")
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    tags.create("gpu", definition=HAS_GPU)
    # The other partition's preview is not done, and rides along.
    assert all(HAS_GPU in item for item in names(worker))


def test_a_worker_that_has_paid_takes_previews_first_again(user: User) -> None:
    worker = a_worker()
    previews.start("//node[1]", {}, user, "c")
    work(worker)
    tags.create("gpu", definition=HAS_GPU)
    previews.start("//node[2]", {}, user, "c")
    paid(worker)
    assert names(worker)[0] == {"//node[2]"}


def test_without_ordinary_work_a_debt_stops_no_preview(user: User) -> None:
    worker = a_worker()
    for number in range(5):
        made = previews.start(f"//node[{number + 1}]", {}, user, "c")
        work(worker)
        assert previews.progress([made.uuid])[made.uuid].state == "complete"


def test_an_ordinary_lease_takes_no_more_than_a_few_previews_along(user: User) -> None:
    worker = a_worker()
    previews.start(ANY, {}, user, "quota")
    work(worker)
    for number in range(8):
        tags.create(f"t{number}", definition=f"//a[{number + 1}]")
    for number in range(6):
        previews.start(f"//b[{number + 1}]", {}, user, f"client {number}")
    for item in names(worker):
        assert sum(text.startswith("//a") for text in item) == 8
        assert sum(text.startswith("//b") for text in item) == 2
    # None where nothing is to be read for it.
    Worker.objects.update(preview_quota_until="2100-01-01T00:00Z")
    given = [str(item) for item in Lease.objects.values_list("uuid", flat=True)]
    leases.give_up(worker, given, "once more")
    for item in names(worker, *Partition.objects.values_list("id", flat=True)):
        assert len(item) == 8 and all(text.startswith("//a") for text in item)


def test_a_preview_lease_that_is_given_back_leaves_a_job_for_everything(user: User) -> None:
    tags.create("gpu", definition=HAS_GPU)
    previews.start(ANY, {}, user, "c")
    worker = a_worker()
    paid(worker)
    _, lease = lease_one(worker)
    leases.give_up(worker, [lease.lease], "draining")
    again = a_worker(name="other")
    work(again)
    assert queue.job_counts()["todo"] == 0
    assert tags.update("gpu", comment="").expression is not None


def test_the_jobs_of_previews_leave_nothing_behind(user: User) -> None:
    previews.start(ANY, {}, user, "c")
    work(a_worker())
    assert jobs() == []


def test_rebuilds_end_while_previews_never_stop(user: User) -> None:
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    work(worker)
    rebuild = rebuilds.request(["gpu"], None)
    for number in range(20):
        previews.start(f"//node[{number + 1}]", {}, user, "c")
        answer = leases.grant(worker, 1, []).answer
        for lease in answer.leases:
            complete(worker, evaluated(answer, lease))
        rebuild.refresh_from_db()
        if rebuild.state == "complete":
            break
    assert rebuild.state == "complete"


def test_a_preview_that_nobody_looks_at_gives_its_priority_up(user: User) -> None:
    previews.start(ANY, {}, user, "c")
    worker = a_worker()
    work(worker)
    assert Preview.objects.get().completed_at is not None
    tags.create("gpu", definition=HAS_GPU)
    work(worker)
    put("a", xml=b"<list/>")
    # What it shows is evaluated with everything else that is stale.
    assert names(worker) == [{ANY, HAS_GPU}]


def test_a_preview_of_what_is_evaluated_already_is_complete_at_once(user: User) -> None:
    tags.create("any", definition=ANY)
    work(a_worker())
    made = previews.start(ANY, {}, user, "c")
    assert made.completed_at is not None


def test_a_preview_gives_a_failed_expression_another_chance(user: User) -> None:
    worker = a_worker()
    made = previews.start(ANY, {}, user, "c")
    fail(worker)
    fail(worker)
    assert previews.progress([made.uuid])[made.uuid].state == "failed"
    again = previews.start(ANY, {}, user, "c")
    work(worker)
    assert previews.progress([again.uuid])[again.uuid].state == "complete"


def test_an_upload_does_not_hold_a_preview_up(user: User) -> None:
    made = previews.start(ANY, {}, user, "c")
    work(a_worker())
    assert previews.progress([made.uuid])[made.uuid].is_over
    put("a", xml=b"<list/>")
    assert previews.progress([made.uuid])[made.uuid].state == "complete"


def test_a_committed_preview_keeps_its_trail(user: User, configure: Callable[..., None]) -> None:
    configure(partition_slots=8, expression_hours=0)
    made = previews.start(ANY, {}, user, "c")
    work(a_worker())
    tags.create("any", definition=ANY)
    previews.cancel(made.uuid)
    tags.delete("any")
    execute("UPDATE expression SET used_at = now() - interval '1 second'")
    maintenance.collect_expressions()
    assert MatchChange.objects.filter(expression__text=ANY).exists()


def test_of_a_users_previews_the_oldest_end(user: User) -> None:
    other = User.objects.create_user("somebody else")
    kept = previews.start("//other", {}, other, "c").uuid
    made = [
        previews.start(f"//node[{number}]", {}, user, f"client {number}").uuid
        for number in range(previews.MAX_OF_A_USER + 5)
    ]
    there = set(Preview.objects.values_list("uuid", flat=True))
    assert there == {kept, *made[5:]}


def test_an_expired_preview_is_forgotten_and_its_expression_collected(
    user: User, configure: Callable[..., None]
) -> None:
    configure(partition_slots=8, expression_hours=0)
    previews.start(ANY, {}, user, "c")
    work(a_worker())
    assert maintenance.collect_expressions() == 0
    execute("UPDATE preview SET expires_at = now() - interval '1 second'")
    assert previews.forget_expired() == 1
    assert not Preview.objects.exists()
    execute("UPDATE expression SET used_at = now() - interval '1 second'")
    maintenance.collect_expressions()
    assert not Expression.objects.filter(text=ANY).exists()
    assert not MatchChange.objects.exists()
    assert queue.job_counts()["todo"] == 0
    assert Partition.objects.count() == 2
