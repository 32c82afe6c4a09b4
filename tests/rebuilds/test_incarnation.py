"""What workers learnt in one incarnation of the database is never applied in another."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import transaction
from lxml import etree

from tagmill.errors import IncarnationChanged, Invalid, WorkerGone
from tagmill.fleet import incarnation, vocabularies
from tagmill.fleet.models import Vocabulary
from tagmill.flows import restoring
from tagmill.matches.models import Match
from tagmill.tags import freshness, rebuilds, tags
from tagmill.work import leases, workers
from tagmill.work.models import Lease, Worker
from tagmill_wire.messages import Register
from tests.fleet.test_incarnation import ELSEWHERE
from tests.support.fleet import ANY, HAS_GPU, carriers, north, tag, the_partition
from tests.support.sql import execute
from tests.support.threads import done, in_thread, until_blocked
from tests.support.workers import a_worker, complete, evaluated, jobs, lease_one, result, work

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(db: None) -> Worker:
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    return a_worker()


def again(worker: Worker) -> Worker:
    return workers.register(worker.token, Register(worker.name, "lxml", "1"))


def test_a_lease_names_the_incarnation_that_its_revs_are_of(worker: Worker) -> None:
    answer, _ = lease_one(worker)
    assert answer.incarnation == str(worker.incarnation) == str(incarnation.current())


def test_a_result_of_another_incarnation_is_refused(worker: Worker) -> None:
    answer, lease = lease_one(worker)
    late = evaluated(answer, lease)
    execute(ELSEWHERE)
    with pytest.raises(IncarnationChanged):
        complete(worker, late)
    incarnation.current()
    with pytest.raises(IncarnationChanged):
        complete(worker, late)
    assert not Match.objects.exists()


def test_a_worker_of_another_incarnation_registers_again(worker: Worker) -> None:
    _, lease = lease_one(worker)
    execute(ELSEWHERE)
    for ask in (
        lambda: leases.grant(worker, 1, []),
        lambda: leases.heartbeat(worker, [lease.lease]),
    ):
        with pytest.raises(WorkerGone):
            ask()
    renewed = again(worker)
    assert renewed.incarnation == incarnation.current() != worker.incarnation
    with pytest.raises(WorkerGone):
        leases.grant(worker, 1, [])


def test_its_leases_are_taken_back_before_their_deadline(worker: Worker) -> None:
    lease_one(worker)
    assert leases.reap() == 0
    execute(ELSEWHERE)
    assert leases.reap() == 1
    assert not Lease.objects.exists()
    assert work(again(worker)) == 1
    assert carriers("gpu") == {"a"}


def test_matches_that_came_with_the_database_stay_fresh(worker: Worker) -> None:
    """They are of the same transaction as its documents."""
    work(worker)
    execute(ELSEWHERE)
    incarnation.current()
    assert freshness.status([tag("gpu")])[tag("gpu").id].state == "ready"
    assert work(again(worker)) == 0


def test_a_rev_ahead_of_the_partition_is_refused(worker: Worker) -> None:
    _, lease = lease_one(worker)
    with pytest.raises(Invalid):
        complete(worker, result(lease, {}, rev=the_partition().rev + 1))


def test_vocabularies_of_another_incarnation_are_merged_anew(worker: Worker) -> None:
    """The revs of the partitions may be the same."""

    def learnt(text: str) -> None:
        Vocabulary.objects.all().delete()
        Vocabulary.objects.create(
            partition=the_partition(),
            rev=7,
            version=vocabularies.words.VERSION,
            documents=1,
            data=vocabularies.pack(_vocabulary(text)),
        )

    learnt("<one/>")
    assert names() == {"one"}
    learnt("<two/>")
    execute(ELSEWHERE)
    assert names() == {"two"}


def _vocabulary(text: str) -> vocabularies.words.Vocabulary:
    return vocabularies.words.Vocabulary.of([etree.fromstring(text)])


def names() -> set[str]:
    known = vocabularies.fleet().vocabulary
    assert known is not None
    return {state.name for state in known.elements}


# -- declared --------------------------------------------------------------------------------------


def test_what_is_declared_is_evaluated_again_and_readers_keep_the_old_set(worker: Worker) -> None:
    work(worker)
    # As if a worker of the other history had been accepted.
    Match.objects.update(rev=the_partition().rev, members=b"\0")
    printed = StringIO()
    call_command("restored", stdout=printed)
    assert str(incarnation.current()) in printed.getvalue()
    assert "1 matches in 1 partitions" in printed.getvalue()
    assert freshness.status([tag("gpu")])[tag("gpu").id].state == "building"
    assert carriers("gpu") == set()
    assert [status for _, status in jobs("todo")] == ["todo"]
    assert work(again(worker)) == 1
    assert carriers("gpu") == {"a"}


def test_a_forced_rebuild_that_is_cancelled_takes_back_nothing_that_is_invalidated(
    worker: Worker,
) -> None:
    work(worker)
    forced = rebuilds.request(["gpu"], None)
    restoring.declare()
    rebuilds.cancel(forced.uuid)
    assert list(Match.objects.values_list("rev", "kept_rev")) == [(-1, None)]


def test_every_match_is_evaluated_again_settled_or_not(worker: Worker) -> None:
    work(worker)
    tags.create("every", definition=ANY)
    tags.create("none", definition="//absent")
    work(worker)
    revs = set(Match.objects.values_list("rev", flat=True))
    assert None in revs
    declared = restoring.declare()
    assert declared.matches == Match.objects.count() == 3
    assert set(Match.objects.values_list("rev", "kept_rev")) == {(-1, None)}
    assert work(again(worker)) == 3


@pytest.mark.django_db(transaction=True)
def test_a_completion_that_waits_for_its_partition_meanwhile_is_refused(no_jobs: None) -> None:
    """A completion that had its lock before ends before the matches there are invalidated."""
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    answer, lease = lease_one(worker)
    late = evaluated(answer, lease)
    with transaction.atomic():
        execute("SELECT FROM partition FOR NO KEY UPDATE")
        completing = in_thread(lambda: complete(worker, late))
        until_blocked(1)
        done(in_thread(incarnation.declare))
    with pytest.raises(IncarnationChanged):
        done(completing)
    assert not Match.objects.exists()
