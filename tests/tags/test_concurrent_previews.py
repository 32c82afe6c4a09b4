"""Previews made, replaced and cancelled at the same time as other things."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from tagmill import locks
from tagmill.errors import NotFound
from tagmill.locks import Lock
from tagmill.matches.models import Expression
from tagmill.tags import previews, tags
from tagmill.tags.models import Preview
from tagmill.work import queue
from tests.support.fleet import ANY, HAS_GPU, north, put
from tests.support.threads import done, in_thread, until_blocked
from tests.support.workers import a_worker, complete, evaluated, lease_one, work

TEXTS = (ANY, HAS_GPU)


@pytest.fixture(autouse=True)
def _fleet(no_jobs: None, configure: Callable[..., None]) -> None:
    configure(partition_slots=8)
    north("a", "b")


@pytest.fixture
def user() -> User:
    return User.objects.create_user("ann")


def test_two_previews_of_one_client_at_once_leave_the_later(user: User) -> None:
    with transaction.atomic():
        previews.start(ANY, {}, user, "c")
        second = in_thread(lambda: previews.start(HAS_GPU, {}, user, "c"))
        until_blocked()
    newer = done(second)
    assert Preview.objects.get().uuid == newer.uuid
    live = Expression.objects.exclude(preview_until=None)
    assert [expression.text for expression in live] == [HAS_GPU]


def test_previews_of_one_user_are_made_one_after_the_other(user: User) -> None:
    """Whichever process of whichever server makes them."""
    other = User.objects.create_user("ben")
    with transaction.atomic():
        locks.query(Lock.CLIENT, previews.__file__, "lock_previews_of", {"user": user.id})
        waiting = in_thread(lambda: previews.start(ANY, {}, user, "c"))
        until_blocked()
        done(in_thread(lambda: previews.start(HAS_GPU, {}, other, "c")))
        assert not waiting.done()
    done(waiting)
    assert Preview.objects.count() == 2


def test_clients_that_swap_their_definitions_do_not_wait_for_each_other_for_ever(
    user: User,
) -> None:
    users = {name: User.objects.create_user(name) for name in ("left", "right", "third")}
    previews.start(ANY, {}, users["left"], "c")
    previews.start(HAS_GPU, {}, users["right"], "c")

    def swap(client: str, first: int) -> None:
        for number in range(20):
            previews.start(TEXTS[(first + number) % 2], {}, users[client], "c")

    running = [
        in_thread(lambda: swap("left", 1)),
        in_thread(lambda: swap("right", 0)),
        in_thread(lambda: swap("third", 1)),
    ]
    for item in running:
        done(item)
    for expression in Expression.objects.all():
        ends = [preview.expires_at for preview in expression.previews.all()]
        assert expression.preview_until == max(ends, default=None)


def test_a_tag_is_deleted_while_clients_compare_with_it(user: User) -> None:
    def compare() -> None:
        for number in range(20):
            try:
                previews.start(TEXTS[number % 2], {}, user, "c", "t")
            except NotFound:
                continue

    def remake() -> None:
        for _ in range(20):
            tags.create("t", definition=ANY)
            tags.delete("t")

    first, second = in_thread(compare), in_thread(remake)
    done(first)
    done(second)
    assert Preview.objects.count() <= 1


def test_work_goes_on_while_previews_come_and_go(user: User) -> None:
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    users = {"left": user, "right": User.objects.create_user("ben")}

    def ask(client: str) -> None:
        for number in range(15):
            made = previews.start(f"//node[{number + 1}]", {}, users[client], client)
            if number % 3 == 0:
                previews.cancel(made.uuid)

    asking = [in_thread(lambda: ask("left")), in_thread(lambda: ask("right"))]
    while not all(item.done() for item in asking):
        work(worker)
    for item in asking:
        done(item)
    work(worker)
    found = previews.progress(list(Preview.objects.values_list("uuid", flat=True)))
    assert [item.state for item in found.values()] == ["complete", "complete"]
    assert queue.job_counts()["todo"] == 0


def test_two_last_completions_at_once_record_that_a_preview_is_complete(user: User) -> None:
    put(*"cdefghij")
    previews.start(ANY, {}, user, "c")
    worker = a_worker()
    first, second = (lease_one(worker) for _ in range(2))
    with transaction.atomic():
        complete(worker, evaluated(*first))
        # It cannot see what we have applied, and must wait to know whether it is the last.
        other = in_thread(lambda: complete(worker, evaluated(*second)))
        until_blocked()
        assert Preview.objects.get().completed_at is None
    done(other)
    assert Preview.objects.get().completed_at is not None


def test_the_results_that_complete_a_preview_wake_whoever_waits_for_it(user: User) -> None:
    previews.start(ANY, {}, user, "c")
    listener = connection.copy()
    try:
        with listener.cursor() as cursor:
            cursor.execute("LISTEN tagmill_preview")
        work(a_worker())
        assert Preview.objects.get().completed_at is not None
        assert list(listener.connection.notifies(timeout=10, stop_after=1))
    finally:
        listener.close()
