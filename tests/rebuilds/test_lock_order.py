"""Pairs of transactions that could wait for each other, and values that are read before a lock."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import transaction

from tagmill import locks, sql
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Partition
from tagmill.flows import ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.matches.models import EffectiveMatch
from tagmill.tags import publishing, rebuilds, tags
from tagmill.tags.models import Rebuild, Tag
from tagmill.work import leases, queue
from tagmill.work.models import Worker
from tagmill_wire.messages import Failure
from tests.support.fleet import ANY, HAS_GPU, carriers, put, tag
from tests.support.sql import execute
from tests.support.threads import done, in_thread, until_blocked
from tests.support.workers import (
    complete,
    evaluated,
    gpu_published,
    lease_one,
    result,
    work,
)

SOURCE = Path(locks.__file__).parent
# Jobs that run are finished under their lease's lock; `defer` announces its lock once for all its
# attempts, each of which gives back what it took.
UNDER_ANOTHER_LOCK = {"finish_jobs", "waiting_jobs"}

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def worker(no_jobs: None, configure: Callable[..., None]) -> Worker:
    """One partition in the north, and one in the south that has a tombstone alone; both fresh."""
    configure(partition_slots=8)
    clusters.create("north")
    clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    return gpu_published()


def emptied() -> Cluster:
    """The south, without a node, and with something to evaluate."""
    ingest.delete("b")
    return Cluster.objects.get(name="south")


def test_rows_are_locked_by_the_helpers_alone() -> None:
    locking = re.compile(r"^(?!--).*\bFOR (NO KEY )?(KEY )?(UPDATE|SHARE)\b(?!.*SKIP LOCKED)", re.M)
    places = [path for path in SOURCE.rglob("*.py") if path.name != "locks.py"]
    for path in places:
        text = path.read_text()
        assert "select_for_update" not in text, path
        for name in re.findall(r'sql\.\w+\(\s*(?:\w+,\s*)?__file__,\s*"(\w+)"', text):
            query = sql.query(str(path), name)
            assert name in UNDER_ANOTHER_LOCK or not locking.search(query), (path, name)


def lock(table: str, key: int) -> None:
    execute(f"SELECT FROM {table} WHERE id = %s FOR UPDATE", [key])


def revs(text: str) -> set[int]:
    return set(EffectiveMatch.objects.filter(expression__text=text).values_list("rev", flat=True))


def test_a_lease_and_the_deletion_of_a_cluster(worker: Worker) -> None:
    south = emptied()
    with transaction.atomic():
        assert len(leases.grant(worker, 8, []).answer.leases) == 1
        # The lease refers to the partition when this commits, and has its job until then.
        other = in_thread(lambda: delete_cluster(south))
        until_blocked()
    done(other)
    assert Partition.objects.count() == 1


def test_a_forced_rebuild_and_the_deletion_of_a_cluster(worker: Worker) -> None:
    south = emptied()
    with transaction.atomic():
        execute("SELECT FROM procrastinate_jobs WHERE status = 'todo' FOR UPDATE")
        deleting = in_thread(lambda: delete_cluster(south))
        until_blocked()
        forcing = in_thread(lambda: rebuilds.request(["gpu"], None))
        until_blocked(2)
    done(deleting)
    rebuild = done(forcing)
    work(worker)
    rebuild.refresh_from_db()
    assert rebuild.state == "complete"


def test_a_lease_that_is_given_back_and_the_deletion_of_a_cluster(worker: Worker) -> None:
    south = emptied()
    (lease,) = leases.grant(worker, 8, []).answer.leases
    # It changes meanwhile, and so has a waiting job beside the lease.
    execute("UPDATE partition SET rev = rev + 1 WHERE id = %s", [lease.partition])
    queue.defer_stale([lease.partition])
    with transaction.atomic():
        execute("SELECT FROM lease FOR UPDATE")
        giving = in_thread(lambda: leases.give_up(worker, [lease.lease], ""))
        until_blocked()
        deleting = in_thread(lambda: delete_cluster(south))
        until_blocked(2)
    done(giving)
    done(deleting)
    assert queue.job_counts()["todo"] == 0


def test_a_definition_that_is_replaced_and_the_completion_of_the_new_one(worker: Worker) -> None:
    tags.create("shown", definition=ANY)
    tags.update("gpu", definition="//old")
    with transaction.atomic():
        # What a completion does: its tags, and then the rebuilds that are reached.
        shown = tag("shown").pending_expression
        assert shown is not None
        publishing.publish([shown.id])
        other = in_thread(lambda: tags.update("gpu", definition=ANY))
        until_blocked()
        rebuilds.finish_reached()
    done(other)
    work(worker)
    assert carriers("gpu") == carriers("shown") == {"a", "b"}


def test_tags_that_share_a_definition_are_locked_in_order(worker: Worker) -> None:
    tags.create("one", definition="//one")
    tags.create("two", definition="//two")
    waiting = [tag(name).pending_expression_id or 0 for name in ("one", "two")]
    with transaction.atomic():
        lock("tag", tag("one").id)

        def publish() -> None:
            with transaction.atomic():
                publishing.publish(waiting)

        publishing_both = in_thread(publish)
        until_blocked()
        # It asks for `one`, too, which waits for the same expression.
        updating = in_thread(lambda: tags.update("two", definition="//one"))
        until_blocked(2)
    done(publishing_both)
    done(updating)
    assert tag("two").pending_expression_id == waiting[0]


def test_a_forced_rebuild_forces_the_definition_that_came_before_its_lock(worker: Worker) -> None:
    tags.create("shown", definition=ANY)
    work(worker)
    with transaction.atomic():
        # It is evaluated everywhere already, and so is published at once.
        tags.update("gpu", definition=ANY)
        other = in_thread(lambda: rebuilds.request(["gpu"], None))
        until_blocked()
    assert done(other).state == "running"
    assert revs(ANY) == {-1} and -1 not in revs(HAS_GPU)


def test_a_forced_rebuild_does_without_a_tag_that_is_deleted_at_this_moment(
    worker: Worker,
) -> None:
    tags.create("same", definition=HAS_GPU)
    with transaction.atomic():
        tags.delete("same")
        other = in_thread(lambda: rebuilds.request(None, None))
        until_blocked()
    assert [item.name for item in done(other).tags.all()] == ["gpu"]


def test_a_cancelled_rebuild_leaves_what_another_has_just_forced(worker: Worker) -> None:
    first = rebuilds.request(["gpu"], None)
    with transaction.atomic():
        second = rebuilds.request(["gpu"], None)
        other = in_thread(lambda: rebuilds.cancel(first.uuid))
        until_blocked()
    done(other)
    assert revs(HAS_GPU) == {-1}
    second.refresh_from_db()
    assert second.state == "running"


def test_many_tags_that_are_deleted_at_once_and_a_completion(worker: Worker) -> None:
    for name in ("one", "two"):
        tags.create(name, definition=ANY)
    answer, lease = lease_one(worker)
    with transaction.atomic():
        lock("tag", tag("two").id)
        deleting = in_thread(lambda: tags.delete_all(["two", "one"]))
        until_blocked()
        completing = in_thread(lambda: complete(worker, evaluated(answer, lease)))
        until_blocked(2)
    done(deleting)
    done(completing)
    assert set(Tag.objects.values_list("name", flat=True)) == {"gpu"}


def test_a_failure_and_a_tag_that_asks_for_the_expression_again(worker: Worker) -> None:
    rebuilds.request(["gpu"], None)
    _, lease = lease_one(worker)
    failures = [Failure(item.expression, "too slow") for item in lease.expressions]
    with transaction.atomic():
        tags.create("again", definition=HAS_GPU)
        # It waits for the expression before it has locked a match or a lease.
        other = in_thread(lambda: complete(worker, result(lease, {}, failures=failures)))
        until_blocked()
        execute("SELECT FROM lease FOR UPDATE NOWAIT")
    done(other)
    assert tag("gpu").expression is not None


def test_a_node_stored_in_a_cluster_that_is_deleted_is_refused(worker: Worker) -> None:
    south = emptied()
    with transaction.atomic():
        delete_cluster(south)
        upload = ingest.Upload("c", "south")
        other = in_thread(lambda: ingest.store([upload]))
        until_blocked()
    (verdict,) = done(other)
    assert verdict.outcome == "refused" and verdict.error.code == "not_found"


def test_a_definition_that_is_replaced_locks_all_rebuilds_that_run() -> None:
    """The same transaction may go on to end others, which would then come out of order."""
    for name in ("one", "two"):
        tags.create(name, definition=f"//{name}")
    other = Rebuild.objects.get(tags__name="two")

    def replace() -> None:
        with transaction.atomic():
            rebuilds.supersede(Tag.objects.get(name="one").id)

    with transaction.atomic():
        locks.rows(Rebuild.objects.filter(id=other.id))
        replacing = in_thread(replace)
        until_blocked()
    done(replacing)
    found = Rebuild.objects.filter(tags__name__in=("one", "two")).order_by("id")
    assert list(found.values_list("state", flat=True)) == ["superseded", "running"]
