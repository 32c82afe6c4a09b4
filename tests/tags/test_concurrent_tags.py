"""Tags while others write: one expression, one publish, one name."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from tagmill.errors import AlreadyExists
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Partition
from tagmill.flows import ingest
from tagmill.flows.clusters import delete as delete_cluster
from tagmill.matches import expressions, matches
from tagmill.matches.matches import Result
from tagmill.matches.models import Expression
from tagmill.tags import assignments, previews, publishing, rebuilds, tags
from tagmill.tags.models import Preview, Rebuild, Tag
from tests.support.fleet import ANY, HAS_GPU, carriers, north, put, tag, the_partition
from tests.support.sql import execute
from tests.support.threads import at_once, done, in_thread, until_blocked
from tests.support.workers import a_worker, complete, evaluated, lease_one, work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_jobs")]


def test_two_that_need_the_same_new_expression_share_it() -> None:
    with transaction.atomic():
        mine = expressions.expression_for(HAS_GPU, {})
        other = in_thread(lambda: expressions.expression_for(HAS_GPU, {}))
        until_blocked()
    assert done(other).id == mine.id
    assert Expression.objects.count() == 1


def test_of_two_that_create_one_tag_one_is_refused() -> None:
    with transaction.atomic():
        tags.create("gpu", definition=HAS_GPU)
        other = in_thread(lambda: tags.create("gpu", definition=ANY))
        until_blocked()
    with pytest.raises(AlreadyExists):
        done(other)
    assert tag("gpu").rebuilds.count() == 1


def test_two_last_completions_at_once_publish_once() -> None:
    clusters.create("north")
    clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    first, second = (lease_one(worker) for _ in range(2))
    with transaction.atomic():
        complete(worker, evaluated(*first))
        # It has applied its own part and cannot see ours: it must wait to know whether it is last.
        other = in_thread(lambda: complete(worker, evaluated(*second)))
        until_blocked()
        assert in_thread(lambda: carriers("gpu")).result() == set()
    assert done(other).results[0].applied == 1
    assert tag("gpu").pending_expression is None
    assert carriers("gpu") == {"a", "b"}
    assert Rebuild.objects.get().state == "complete"


def test_a_tag_made_beside_the_last_completion_is_published() -> None:
    """Neither sees the other: the tag's transaction has looked at matches, and the worker's at who
    waits. Then nothing is stale, and no result comes any more."""
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    leased = lease_one(worker)
    with transaction.atomic():
        tags.create("twin", definition=HAS_GPU)
        other = in_thread(lambda: complete(worker, evaluated(*leased)))
        until_blocked()
    done(other)
    assert carriers("gpu") == carriers("twin") == {"a"}
    assert tag("twin").pending_expression is None
    assert set(Rebuild.objects.values_list("state", flat=True)) == {"complete"}


@pytest.mark.parametrize("kind", ["tag", "preview"])
def test_what_begins_to_wait_after_a_completion_looked_who_waits_ends(kind: str) -> None:
    """The last result is not seen by what begins to wait until it is committed."""
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    worker, user = a_worker(), User.objects.create_user("ann")
    leased = lease_one(worker)
    begun = False

    def begin() -> None:
        if kind == "tag":
            tags.create("twin", definition=HAS_GPU)
        else:
            previews.start(HAS_GPU, {}, user, "c")

    def beginning(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal begun
        found = execute(sql, *rest)
        if not begun and "EXISTS (SELECT FROM rebuild WHERE state = 'running')" in sql:
            begun = True
            done(in_thread(begin))
        return found

    with connection.execute_wrapper(beginning):
        complete(worker, evaluated(*leased))
    assert begun
    assert not Tag.objects.exclude(pending_expression=None).exists()
    assert not Preview.objects.filter(completed_at=None).exists()


def test_a_preview_made_beside_the_last_completion_ends() -> None:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    worker, user = a_worker(), User.objects.create_user("ann")
    leased = lease_one(worker)
    with transaction.atomic():
        previews.start(HAS_GPU, {}, user, "c")
        done(in_thread(lambda: complete(worker, evaluated(*leased))))
    assert Preview.objects.get().completed_at is not None


def test_a_forced_rebuild_that_is_cancelled_publishes_what_it_kept_back() -> None:
    """What it made stale was all that a pending definition still waited for."""
    clusters.create("north")
    clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    first, second = (lease_one(worker) for _ in range(2))
    complete(worker, evaluated(*first))
    forced = rebuilds.request(["gpu"], None)
    complete(worker, evaluated(*second))
    assert tag("gpu").pending_expression is not None
    rebuilds.cancel(forced.uuid)
    assert carriers("gpu") == {"a", "b"}
    assert set(Rebuild.objects.values_list("state", flat=True)) == {"complete", "cancelled"}


def test_a_cluster_that_is_deleted_keeps_no_tag_waiting() -> None:
    clusters.create("north")
    south = clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker(Cluster.objects.get(name="north"))
    work(worker)
    ingest.delete("b")
    assert tag("gpu").pending_expression is not None
    delete_cluster(south)
    assert carriers("gpu") == {"a"}


def test_a_sweep_publishes_what_is_complete_and_was_not_published() -> None:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    expression = tag("gpu").pending_expression
    assert expression is not None
    partition = the_partition()
    with transaction.atomic():
        found = Result(expression.id, partition.id, partition.rev, 1)
        matches.apply([found], {partition.id: partition})
    assert tag("gpu").expression is None
    with transaction.atomic():
        assert publishing.publish() == [tag("gpu").id]
        assert publishing.publish() == []
    assert carriers("gpu") == {"a"}


def test_a_definition_replaced_while_it_is_published_ends_in_one_of_both_orders() -> None:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    leased = lease_one(worker)
    with transaction.atomic():
        complete(worker, evaluated(*leased))
        other = in_thread(lambda: tags.update("gpu", definition=ANY))
        until_blocked()
    changed = done(other)
    assert changed.expression.text == HAS_GPU and changed.pending_expression.text == ANY
    assert [item.state for item in Rebuild.objects.order_by("id")] == ["complete", "running"]


def test_namespaces_changed_beside_a_definition_keep_the_new_definition() -> None:
    clusters.create("north")
    tags.create("gpu", definition=HAS_GPU)
    with transaction.atomic():
        tags.update("gpu", definition=ANY)
        other = in_thread(lambda: tags.update("gpu", namespaces={"lldp": "lldp"}))
        until_blocked()
    changed = done(other).expression
    assert (changed.text, changed.namespaces) == (ANY, {"lldp": "lldp"})


def test_assignments_at_the_same_time_are_all_kept() -> None:
    clusters.create("north")
    names = [f"n{i}" for i in range(8)]
    put(*names)
    tags.create("mine")
    at_once(*(lambda name=name: assignments.assign("mine", [name], []) for name in names))
    assert carriers("mine") == set(names)


def test_assigning_and_deleting_at_once_leaves_no_bit_behind() -> None:
    north("a", "b")
    tags.create("mine")
    with transaction.atomic():
        ingest.delete("a")
        other = in_thread(lambda: assignments.assign("mine", ["a", "b"], []))
        until_blocked()
    assert done(other) == {"added": 1, "removed": 0, "unknown": ["a"]}
    assert execute("SELECT sum(bit_count(members)) FROM assignment") == [(1,)]


def test_a_definition_changed_while_a_rebuild_is_asked_for_does_not_deadlock() -> None:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    with transaction.atomic():
        rebuilds.request(["gpu"], None)
        other = in_thread(lambda: tags.update("gpu", definition=ANY))
        until_blocked()
    done(other)
    assert tag("gpu").pending_expression is not None


def test_a_rebuild_cancelled_during_a_completion_does_not_deadlock() -> None:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    work(worker)
    rebuild = rebuilds.request(["gpu"], None)
    answer, lease = lease_one(worker)
    partition = Partition.objects.get()
    found = Result(tag("gpu").expression_id or 0, partition.id, partition.rev, 1)
    with transaction.atomic():
        # What a completion does first; it ends with the rebuilds.
        matches.apply([found], {partition.id: partition})
        other = in_thread(lambda: rebuilds.cancel(rebuild.uuid))
        until_blocked()
        assert complete(worker, evaluated(answer, lease)).results[0].outcome == "applied"
        assert rebuilds.finish_reached() == []
    with pytest.raises(rebuilds.NotCancellable):
        done(other)
    rebuild.refresh_from_db()
    assert rebuild.state == "complete"


def test_a_collection_during_a_late_completion_does_not_deadlock() -> None:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    expression = tag("gpu").expression_id or 0
    partition = the_partition()
    tags.delete("gpu")
    with transaction.atomic():
        # The collector has found it, and deletes its matches next.
        execute("SELECT FROM expression FOR UPDATE")
        late = Result(expression, partition.id, partition.rev + 1, 0)

        def apply() -> set[tuple[int, int]]:
            with transaction.atomic():
                return matches.apply([late], {partition.id: partition}).of(partition.id)

        other = in_thread(apply)
        until_blocked()
        execute("DELETE FROM match")
        execute("DELETE FROM match_change")
        execute("DELETE FROM rebuild_target")
        execute("DELETE FROM expression")
    assert done(other) == set()
