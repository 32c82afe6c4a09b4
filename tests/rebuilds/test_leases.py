"""Leases: who gets what, for how long, and what happens to what they answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import structlog
from django.db.models.functions import Now
from msgspec.structs import replace

from tagmill.errors import Invalid
from tagmill.fleet import clusters
from tagmill.fleet.models import Cluster, Partition
from tagmill.matches import staleness
from tagmill.matches.models import Match, MatchChange
from tagmill.tags import rebuilds, tags
from tagmill.work import leases, policy, queue
from tagmill.work.models import Lease, Worker, WorkerToken
from tagmill.work.policy import Speed
from tagmill_wire import bitmap
from tagmill_wire.messages import Failure, MatchResult
from tests.support.fleet import (
    ANY,
    BARE,
    HAS_GPU,
    carriers,
    put,
    stale_partitions,
    tag,
    the_partition,
)
from tests.support.sql import execute
from tests.support.workers import a_worker, complete, evaluated, jobs, lease_one, result, work

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _north(db: None, configure: Callable[..., None]) -> None:
    configure(partition_slots=8)
    clusters.create("north")


@pytest.fixture
def worker() -> Worker:
    """A worker, and a tag to evaluate on one partition with the nodes a and b."""
    put("a", "b")
    tags.create("gpu", definition=HAS_GPU)
    return a_worker()


def partitions(worker: Worker, wanted: int, *holds: int) -> list[int]:
    return [item.partition for item in leases.grant(worker, wanted, holds).answer.leases]


# -- granting --------------------------------------------------------------------------------------


def test_a_lease_tells_everything_about_the_partition(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    partition = the_partition()
    expression = tag("gpu").pending_expression
    assert expression is not None
    assert (lease.partition, lease.rev, lease.capacity) == (partition.id, 1, 8)
    assert lease.cluster == str(partition.cluster.uuid)
    assert [(item.expression, item.base_rev) for item in lease.expressions] == [
        (expression.id, None)
    ]
    assert answer.expressions[str(expression.id)].text == HAS_GPU
    complete(worker, evaluated(answer, lease))
    put("a", xml=BARE)
    _, lease = lease_one(worker)
    assert (lease.rev, lease.expressions[0].base_rev) == (2, 1)


def test_a_partition_has_one_lease_at_a_time(worker: Worker) -> None:
    _, lease = lease_one(worker)
    put("a", xml=BARE)
    assert jobs() == [(lease.partition, "doing"), (lease.partition, "todo")]
    assert leases.grant(a_worker(name="other"), 8, []).answer.leases == []


def test_a_worker_gets_half_of_its_share_so_that_others_get_some() -> None:
    ids = stale_partitions(8)
    first, second = a_worker(name="1"), a_worker(name="2")
    assert partitions(first, 64) == ids[:2]
    assert partitions(second, 64) == ids[2:4]
    assert partitions(first, 64) == ids[4:5]
    assert partitions(second, 0) == []


def test_a_worker_gets_all_of_its_share_of_what_it_holds() -> None:
    ids = stale_partitions(12)
    first, second = a_worker(name="1"), a_worker(name="2")
    assert partitions(first, 64, *ids) == ids[:6]
    assert partitions(second, 64, *ids) == ids[6:10]
    assert partitions(first, 64, *ids[:10]) == ids[10:11]
    assert partitions(second, 64, *ids) == ids[11:]


def test_a_silent_worker_takes_no_share() -> None:
    ids = stale_partitions(8)
    first = a_worker(name="1")
    a_worker(name="2")
    execute("UPDATE worker SET last_heartbeat = now() - interval '1 hour'")
    assert partitions(first, 64) == ids[:4]


def test_workers_of_other_clusters_take_no_share() -> None:
    ids = stale_partitions(8)
    south = clusters.create("south")
    first = a_worker(name="1")
    a_worker(south, name="2")
    a_worker(south, Cluster.objects.get(name="north"), name="3")
    assert partitions(first, 64) == ids[:2]


def test_workers_whose_token_is_revoked_take_no_share() -> None:
    ids = stale_partitions(8)
    first = a_worker(name="1")
    a_worker(name="2")
    WorkerToken.objects.filter(name="2").update(revoked_at=Now())
    assert partitions(first, 64) == ids[:4]


def test_what_a_worker_holds_comes_first() -> None:
    ids = stale_partitions(4)
    assert partitions(a_worker(), 2, ids[3], ids[2], 999_999) == [ids[2], ids[3]]


def test_a_token_reaches_its_clusters_only() -> None:
    south = clusters.create("south")
    put("a", cluster="north")
    put("b", cluster="south")
    tags.create("gpu", definition=HAS_GPU)
    theirs = Partition.objects.get(cluster=south).id
    bound = a_worker(south)
    assert partitions(bound, 8) == [theirs]
    assert partitions(bound, 8) == []


def test_a_job_with_nothing_left_to_do_ends_without_a_lease(worker: Worker) -> None:
    tags.delete("gpu")
    assert leases.grant(worker, 8, []).answer.leases == []
    assert {status for _, status in jobs()} == {"succeeded"}


def test_a_lease_for_whole_partitions_is_bounded_by_what_the_worker_evaluates_in_time() -> None:
    ids = stale_partitions(8)
    for number in range(9):
        tags.create(f"t{number}", definition=f"//a[{number + 1}]")
    worker = a_worker()
    # Ten expressions on eight nodes: a partition takes a tenth of a second, then a second.
    quick = Speed(document=0.0, evaluation=0.1 / 80)
    answer = leases.grant(worker, 64, [], quick).answer
    assert [lease.partition for lease in answer.leases] == ids[:2]
    assert {len(lease.expressions) for lease in answer.leases} == {10}
    slow = Speed(document=0.0, evaluation=10.0 / 80)
    answer = leases.grant(worker, 64, [], slow).answer
    (lease,) = answer.leases
    assert len(lease.expressions) == policy.MIN_NAMED
    # The rest of it waits for another lease.
    complete(worker, evaluated(answer, lease))
    assert jobs("todo").count((lease.partition, "todo")) == 1
    # One that does not say its speed is given as much as ever.
    assert len(leases.grant(worker, 64, []).answer.leases) > 2


def test_a_new_definition_comes_before_a_forced_rebuild() -> None:
    ids = stale_partitions(2)
    worker = a_worker()
    work(worker)
    rebuilds.request(["gpu"], None)
    tags.create("any", definition=ANY)
    Worker.objects.update(definition_quota_until="2000-01-01T00:00Z")
    answer, lease = lease_one(worker)
    assert [answer.expressions[str(item.expression)].text for item in lease.expressions] == [ANY]
    complete(worker, evaluated(answer, lease))
    assert Worker.objects.filter(definition_quota_until__gt="2001-01-01T00:00Z").exists()
    execute("UPDATE worker SET definition_quota_until = now() + interval '1 hour'")
    # Its quota is spent, so that the rebuild has its turn; a partition is leased for all of it.
    answer, lease = lease_one(worker)
    assert HAS_GPU in {answer.expressions[str(item.expression)].text for item in lease.expressions}
    assert lease.partition in ids


# -- completing ------------------------------------------------------------------------------------


def test_a_completion_applies_finishes_and_publishes(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    (outcome,) = complete(worker, evaluated(answer, lease)).results
    assert (outcome.lease, outcome.outcome, outcome.applied, outcome.stale) == (
        lease.lease,
        "applied",
        1,
        0,
    )
    assert jobs() == [(lease.partition, "succeeded")]
    assert not Lease.objects.exists() and carriers("gpu") == {"a", "b"}


def test_a_duplicate_completion_changes_nothing(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    said = evaluated(answer, lease)
    complete(worker, said)
    (outcome,) = complete(worker, said).results
    assert (outcome.outcome, outcome.applied, outcome.stale) == ("late", 0, 1)
    assert jobs() == [(lease.partition, "succeeded")]
    assert MatchChange.objects.count() == 1


def test_a_late_completion_is_applied_and_leaves_the_next_lease_alone(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    said = evaluated(answer, lease)
    execute("UPDATE lease SET deadline = now() - interval '1 second'")
    assert leases.reap() == 1
    other = a_worker(name="other")
    again = lease_one(other)
    (outcome,) = complete(worker, said).results
    assert (outcome.outcome, outcome.applied) == ("late", 1)
    assert carriers("gpu") == {"a", "b"}
    assert jobs() == [(lease.partition, "aborted"), (lease.partition, "doing")]
    (second,) = complete(other, evaluated(*again)).results
    assert (second.outcome, second.applied, second.stale) == ("applied", 0, 1)
    assert jobs("todo") == jobs("doing") == []


def test_an_older_verdict_never_replaces_a_newer_one(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    old = evaluated(answer, lease)
    leases.give_up(worker, [lease.lease], "")
    put("a", xml=BARE)
    work(a_worker(name="other"))
    (outcome,) = complete(worker, old).results
    assert (outcome.outcome, outcome.applied, outcome.stale) == ("late", 0, 1)
    assert carriers("gpu") == {"b"}


def test_another_workers_lease_is_not_finished(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    (outcome,) = complete(a_worker(name="other"), evaluated(answer, lease)).results
    assert (outcome.outcome, outcome.applied) == ("late", 1)
    assert Lease.objects.count() == 1 and jobs() == [(lease.partition, "doing")]


def test_results_for_other_clusters_are_stale(worker: Worker) -> None:
    south = clusters.create("south")
    answer, lease = lease_one(worker)
    (outcome,) = complete(a_worker(south, name="bound"), evaluated(answer, lease)).results
    assert (outcome.outcome, outcome.applied, outcome.stale) == ("late", 0, 1)
    assert not Match.objects.exists()


@pytest.mark.parametrize("rev", [2, -1, 1 << 40])
def test_a_rev_that_cannot_be_is_refused_and_nothing_is_applied(worker: Worker, rev: int) -> None:
    put("c", "d", "e", "f", "g", "h", "i")
    first = lease_one(worker)
    second = lease_one(worker)
    bad = replace(evaluated(*second), rev=second[1].rev + rev if rev == 2 else rev)
    with pytest.raises(Invalid) as caught:
        complete(worker, evaluated(*first), bad)
    assert caught.value.extra["field"] == "results[1].rev"
    assert not Match.objects.exists() and Lease.objects.count() == 2


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"members": "AAA="}, ".members"),
        ({"members": ""}, ".members"),
        ({"members": "?"}, ".members"),
        ({"members": "ü"}, ".members"),
        ({"members": "AA==", "base_rev": 0, "evaluated": "AAAA"}, ".evaluated"),
        ({"members": "AA==", "base_rev": 0}, ""),
        ({"members": "AA==", "evaluated": "AA=="}, ""),
    ],
)
def test_a_malformed_result_is_refused_and_nothing_is_applied(
    worker: Worker, fields: dict[str, object], where: str
) -> None:
    answer, lease = lease_one(worker)
    good = evaluated(answer, lease)
    bad = MatchResult(good.matches[0].expression, **fields)  # type: ignore[arg-type]
    with pytest.raises(Invalid) as caught:
        complete(worker, replace(good, matches=[good.matches[0], bad]))
    assert caught.value.extra["field"] == f"results[0].matches[1]{where}"
    assert not Match.objects.exists() and Lease.objects.exists()


def test_bits_beyond_the_slots_given_out_are_dropped(worker: Worker) -> None:
    _, lease = lease_one(worker)
    complete(worker, result(lease, {lease.expressions[0].expression: {0, 5, 7}}))
    assert bitmap.from_bytes(Match.objects.get().members) == 1


def test_ids_that_nobody_has_are_stale_and_do_no_harm(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    good = evaluated(answer, lease)
    # The largest that a message may have.
    huge = (1 << 63) - 1
    odd = replace(good.matches[0], expression=huge)
    outcomes = complete(
        worker, replace(good, matches=[odd]), replace(good, partition=huge, lease=str(uuid4()))
    ).results
    assert [(item.applied, item.stale) for item in outcomes] == [(0, 1), (0, 1)]
    assert partitions(worker, 1, huge) == [lease.partition]


def test_a_partition_that_changed_meanwhile_is_deferred_again(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    said = evaluated(answer, lease)
    put("a", xml=BARE)
    complete(worker, said)
    assert jobs() == [(lease.partition, "succeeded"), (lease.partition, "todo")]
    work(worker)
    assert carriers("gpu") == {"b"}


def test_a_lease_answered_in_part_is_deferred_again(worker: Worker) -> None:
    tags.create("any", definition=ANY)
    answer, lease = lease_one(worker)
    said = evaluated(answer, lease)
    complete(worker, replace(said, matches=said.matches[:1]))
    assert jobs("todo") == [(lease.partition, "todo")]
    work(worker)
    assert staleness.stale([lease.partition]) == []


# -- keeping and ending ----------------------------------------------------------------------------


def test_a_heartbeat_extends_what_stands_and_names_what_does_not(worker: Worker) -> None:
    _, lease = lease_one(worker)
    execute("UPDATE lease SET deadline = now() + interval '1 second'")
    stranger = str(uuid4())
    assert leases.heartbeat(worker, [lease.lease, stranger]) == [stranger]
    ((left,),) = execute("SELECT extract(epoch FROM deadline - now()) FROM lease")
    assert left > 30
    assert leases.heartbeat(a_worker(name="other"), [lease.lease]) == [lease.lease]
    execute("UPDATE lease SET deadline = now() - interval '1 second'")
    assert leases.heartbeat(worker, [lease.lease]) == [lease.lease]


def test_when_a_lease_began_is_an_instant_that_anybody_can_compare(worker: Worker) -> None:
    """The server binds and answers in binary: a date is aware all the same."""
    _, lease = lease_one(worker)
    ended = leases.finish(worker, [lease.lease])
    assert abs(ended[lease.lease].leased_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_lease_ends_by_the_databases_clock_and_the_partition_is_leased_again(
    worker: Worker,
) -> None:
    _, lease = lease_one(worker)
    assert leases.reap() == 0
    execute("UPDATE lease SET deadline = now() - interval '1 second'")
    assert leases.reap() == 1 and leases.reap() == 0
    assert jobs() == [(lease.partition, "aborted"), (lease.partition, "todo")]
    assert partitions(worker, 1) == [lease.partition]


def test_a_lease_given_up_can_be_had_at_once_and_only_by_its_worker(worker: Worker) -> None:
    _, lease = lease_one(worker)
    leases.give_up(a_worker(name="other"), [lease.lease], "")
    assert Lease.objects.exists()
    leases.give_up(worker, [lease.lease, str(uuid4())], "draining")
    assert partitions(worker, 1) == [lease.partition]


def test_what_a_worker_could_not_evaluate_waits_for_its_time_or_for_a_change(
    worker: Worker,
) -> None:
    _, lease = lease_one(worker)
    leases.give_up(worker, [lease.lease], "the document in slot 1 could not be read", 300)
    assert jobs("todo") == [(lease.partition, "todo")]
    assert partitions(worker, 1) == []
    execute("UPDATE procrastinate_jobs SET scheduled_at = now() - interval '1 second'")
    (again,) = leases.grant(worker, 1, []).answer.leases
    leases.give_up(worker, [again.lease], "the document in slot 1 could not be read", 300)
    queue.defer_partitions([lease.partition], policy.PREVIEW)
    assert partitions(worker, 1) == []
    put("a", xml=BARE)
    assert partitions(worker, 1) == [lease.partition]


def test_a_lease_says_what_an_expression_may_take_now(
    worker: Worker, configure: Callable[..., None]
) -> None:
    configure(evaluation_seconds=40.0)
    assert lease_one(worker)[0].evaluation_seconds == 40.0


def test_a_failed_evaluation_is_logged_with_its_tag_partition_and_reason(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    (stale,) = lease.expressions
    failed = [Failure(stale.expression, "stopped after 9 steps")]
    said = replace(evaluated(answer, lease), matches=[], failures=failed)
    with structlog.testing.capture_logs() as lines:
        complete(worker, said)
    (line,) = (line for line in lines if line.get("action") == "evaluation_failed")
    assert (line["tags"], line["partitions"]) == (["gpu"], [lease.partition])
    assert line["reason"] == "stopped after 9 steps"
    assert line["expression"] == stale.expression and line["worker"] == worker.name


def test_a_change_during_a_lease_that_is_given_up_makes_one_job(worker: Worker) -> None:
    _, lease = lease_one(worker)
    put("a", xml=BARE)
    leases.give_up(worker, [lease.lease], "")
    assert jobs("todo") == [(lease.partition, "todo")]


# -- the sweep -------------------------------------------------------------------------------------


def test_the_sweep_finds_stale_partitions_without_a_job(worker: Worker) -> None:
    execute("DELETE FROM procrastinate_jobs")
    assert leases.repair() == 1 and leases.repair() == 0
    assert jobs() == [(the_partition().id, "todo")]


def test_the_sweep_finds_jobs_whose_worker_was_removed(worker: Worker) -> None:
    _, lease = lease_one(worker)
    Worker.objects.all().delete()
    assert leases.repair() == 2
    assert jobs() == [(lease.partition, "aborted"), (lease.partition, "todo")]


def test_the_sweep_leaves_leases_alone(worker: Worker) -> None:
    lease_one(worker)
    assert leases.repair() == 0


def test_a_fleet_without_tags_makes_no_jobs() -> None:
    put("a")
    assert jobs() == []


def test_a_rebuild_defers_each_partition_once() -> None:
    ids = stale_partitions(3)
    rebuilds.request(["gpu"], None)
    rebuilds.request(["gpu"], None)
    assert sorted(jobs()) == [(item, "todo") for item in ids]
