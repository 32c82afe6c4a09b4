"""Rebuilds: asked for, watched, cancelled, failed and finished."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from tagmill.errors import ManualTag, NotCancellable, NotFound
from tagmill.flows import ingest
from tagmill.matches.models import EffectiveMatch, Expression, Match
from tagmill.tags import freshness, rebuilds, tags
from tagmill.tags.models import Rebuild, RebuildTarget
from tagmill.work import leases
from tagmill.work.models import Worker
from tagmill_wire.messages import Failure
from tests.support.fleet import ANY, BARE, HAS_GPU, carriers, north, put, tag
from tests.support.workers import (
    complete,
    evaluated,
    fail,
    gpu_published,
    lease_one,
    result,
    work,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def worker(db: None, configure: Callable[..., None]) -> Worker:
    """Two partitions (a to h; i, j) with the tag gpu published on all."""
    configure(partition_slots=8, evaluation_attempts=2)
    north(*"abcdefghij")
    return gpu_published()


def state(rebuild: Rebuild) -> str:
    rebuild.refresh_from_db()
    return str(rebuild.state)


def revs() -> set[tuple[int, int | None]]:
    """What matches count as, and what they keep while a rebuild is forced."""
    kept = {match.pk: match.kept_rev for match in Match.objects.all()}
    return {(match.rev, kept[match.pk]) for match in EffectiveMatch.objects.all()}


def test_a_forced_rebuild_keeps_what_readers_see(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    assert revs() == {(-1, 1)}
    assert carriers("gpu") == set("abcdefghij")
    (status,) = freshness.status([tag("gpu")]).values()
    assert (status.state, status.pending, status.node_count) == ("building", 2, 10)
    assert work(worker) == 2
    assert revs() == {(1, None)} and state(rebuild) == "complete"


def test_a_cancelled_forced_rebuild_puts_the_revs_back(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    rebuilds.cancel(rebuild.uuid)
    assert revs() == {(1, None)} and state(rebuild) == "cancelled"
    (status,) = freshness.status([tag("gpu")]).values()
    assert status.state == "ready"
    assert leases.grant(worker, 8, []).answer.leases == []
    with pytest.raises(NotCancellable):
        rebuilds.cancel(rebuild.uuid)
    with pytest.raises(NotFound):
        rebuilds.cancel(uuid4())


def test_a_cancelled_rebuild_does_not_hide_a_change_made_meanwhile(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    put("a", xml=BARE)
    rebuilds.cancel(rebuild.uuid)
    work(worker)
    assert carriers("gpu") == set("bcdefghij")


def test_what_two_forced_rebuilds_want_stays_forced_until_both_are_cancelled(
    worker: Worker,
) -> None:
    first, second = rebuilds.request(["gpu"], None), rebuilds.request(None, None)
    rebuilds.cancel(first.uuid)
    assert revs() == {(-1, 1)}
    rebuilds.cancel(second.uuid)
    assert revs() == {(1, None)}


def test_a_rebuild_of_all_takes_every_automatic_tag_and_no_manual_one(worker: Worker) -> None:
    tags.create("mine")
    tags.create("any", definition=ANY)
    rebuild = rebuilds.request(None, None)
    assert set(rebuild.tags.values_list("name", flat=True)) == {"gpu", "any"}
    assert RebuildTarget.objects.filter(rebuild=rebuild).count() == 4
    with pytest.raises(ManualTag):
        rebuilds.request(["gpu", "mine"], None)
    with pytest.raises(NotFound):
        rebuilds.request(["gpu", "nobody"], None)


def test_a_cancelled_definition_is_dropped_and_the_old_one_stays(worker: Worker) -> None:
    tags.update("gpu", definition="//none")
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    rebuild = Rebuild.objects.get(reason="definition")
    rebuilds.cancel(rebuild.uuid)
    assert tag("gpu").pending_expression is None and state(rebuild) == "cancelled"
    work(worker)
    assert carriers("gpu") == set("abcdefghij")


@pytest.mark.parametrize("redefined", [False, True])
def test_the_definition_of_a_new_tag_cannot_be_cancelled(worker: Worker, redefined: bool) -> None:
    tags.create("new", definition=ANY)
    if redefined:
        tags.update("new", definition="//none")
    with pytest.raises(NotCancellable):
        rebuilds.cancel(tag("new").rebuilds.get(state="running").uuid)
    assert tag("new").pending_expression is not None


def test_progress_is_counted_in_matches_and_nodes(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    start = rebuilds.progress(rebuild)
    assert (start.state, start.done, start.total) == ("running", 0, 2)
    assert (start.nodes_done, start.nodes_total) == (0, 10)
    assert start.nodes_per_second is None and start.eta_seconds is None
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    half = rebuilds.progress(rebuild)
    assert (half.done, half.total, half.nodes_done, half.nodes_total) == (1, 2, 8, 10)
    assert half.nodes_per_second is not None and half.nodes_per_second > 0
    assert half.eta_seconds is not None and half.eta_seconds > 0
    work(worker)
    end = rebuilds.progress(rebuild)
    assert (end.state, end.done, end.nodes_done, end.eta_seconds) == ("complete", 2, 10, 0.0)
    rebuilds.request(["gpu"], None)
    again = rebuilds.progress(rebuild)
    assert (again.done, again.nodes_done) == (2, 10)


def test_nodes_are_done_when_all_expressions_of_their_partition_are(worker: Worker) -> None:
    tags.create("any", definition=ANY)
    work(worker)
    rebuild = rebuilds.request(None, None)
    answer, lease = lease_one(worker)
    whole = evaluated(answer, lease)
    half = whole.matches[:1]
    complete(worker, result(lease, {}, whole.rev).__class__(**{**_fields(whole), "matches": half}))
    progress = rebuilds.progress(rebuild)
    assert (progress.done, progress.total, progress.nodes_done) == (1, 4, 0)


def _fields(message: object) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__slots__}  # type: ignore[attr-defined]


def test_targets_are_the_revs_when_it_was_asked_for(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    first, second = (lease_one(worker) for _ in range(2))
    results = [evaluated(*first), evaluated(*second)]
    put("a", xml=BARE)
    complete(worker, *results)
    assert state(rebuild) == "complete"
    work(worker)
    assert carriers("gpu") == set("bcdefghij")


def test_an_expression_that_fails_twice_fails_its_tag_and_no_other(worker: Worker) -> None:
    tags.create("slow", definition="//slow")
    tags.create("any", definition=ANY)
    slow = tag("slow").pending_expression
    assert slow is not None
    for _ in range(2):
        answer, lease = lease_one(worker)
        good = [item for item in evaluated(answer, lease).matches if item.expression != slow.id]
        reported = result(lease, {}, failures=[Failure(slow.id, "stopped after\n5 s")])
        fields = {**_fields(reported), "matches": good}
        complete(worker, type(reported)(**fields))
    work(worker)
    found = freshness.status([tag("slow"), tag("any"), tag("gpu")])
    assert [item.state for item in found.values()] == ["failed", "ready", "ready"]
    assert found[tag("slow").id].failure.startswith("stopped after 5 s. Simplify")
    assert tag("slow").rebuilds.get().state == "failed"
    assert tag("any").rebuilds.get().state == "complete"
    assert carriers("any") == set("abcdefghij")
    assert leases.grant(worker, 8, []).answer.leases == []


def test_a_published_expression_that_fails_keeps_its_nodes(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    fail(worker)
    fail(worker)
    assert state(rebuild) == "failed"
    (status,) = freshness.status([tag("gpu")]).values()
    assert (status.state, status.node_count) == ("failed", 10)
    assert carriers("gpu") == set("abcdefghij")


def test_a_new_tag_gives_a_failed_expression_another_chance(worker: Worker) -> None:
    rebuilds.request(["gpu"], None)
    fail(worker)
    fail(worker)
    tags.create("display", definition=HAS_GPU)
    work(worker)
    found = freshness.status([tag("gpu"), tag("display")])
    assert [item.state for item in found.values()] == ["ready", "ready"]


def test_a_forced_rebuild_gives_a_failed_expression_another_chance(worker: Worker) -> None:
    rebuilds.request(["gpu"], None)
    fail(worker)
    fail(worker)
    assert Expression.objects.get().failed_at is not None
    rebuild = rebuilds.request(["gpu"], None)
    found = Expression.objects.get()
    assert (found.attempts, found.failed_at, found.failure) == (0, None, "")
    work(worker)
    assert state(rebuild) == "complete" and revs() == {(1, None)}


def test_a_rebuild_that_waits_only_for_a_deleted_tag_ends(worker: Worker) -> None:
    tags.create("any", definition=ANY)
    work(worker)
    rebuild = rebuilds.request(None, None)
    answer, lease = lease_one(worker)
    complete(worker, evaluated(answer, lease))
    tags.delete("any")
    assert state(rebuild) == "running"
    work(worker)
    assert state(rebuild) == "complete"


def test_a_node_that_comes_and_goes_during_a_rebuild_is_not_lost(worker: Worker) -> None:
    rebuild = rebuilds.request(["gpu"], None)
    answer, lease = lease_one(worker)
    late = evaluated(answer, lease)
    ingest.delete("a")
    put("a")
    complete(worker, late)
    work(worker)
    assert state(rebuild) == "complete" and carriers("gpu") == set("abcdefghij")
