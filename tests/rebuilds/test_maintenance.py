"""The periodic tasks, and the thread that runs them."""

from __future__ import annotations

import itertools
import threading

import attr
import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import connection
from procrastinate.contrib.django import app

from tagmill.audit.models import Event
from tagmill.fleet import clusters
from tagmill.flows import maintenance
from tagmill.matches.models import Expression, Match, MatchChange
from tagmill.tags import rebuilds, tags
from tagmill.tags.models import Rebuild, RebuildTarget
from tagmill.work import leases, queue
from tagmill.work.models import Lease, Sample
from tests.support.fleet import ANY, HAS_GPU, carriers, north, put, tag, the_partition
from tests.support.sql import execute
from tests.support.threads import done, in_thread, until
from tests.support.workers import a_worker, complete, evaluated, fail, jobs, lease_one, work


@pytest.fixture
def fleet(db: None) -> None:
    north("a")


def age(table: str, column: str, hours: float = 2) -> None:
    execute(f"UPDATE {table} SET {column} = now() - make_interval(secs => %s)", [hours * 3600])


# -- expressions -----------------------------------------------------------------------------------


def test_a_failure_that_a_result_followed_is_forgotten(transactional_db: None, fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    fail(worker)
    maintenance.sweep()
    assert Expression.objects.get().attempts == 1
    work(worker)
    # The partition has changed since: what it needs next is another matter.
    put("b")
    maintenance.sweep()
    assert Expression.objects.get().attempts == 0
    fail(worker)
    assert Expression.objects.get().failed_at is None
    fail(worker)
    assert Expression.objects.get().failed_at is not None


def test_a_failure_is_kept_while_its_partition_waits(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()
    work(worker)
    put("b")
    fail(worker)
    clusters.create("south")
    put("c", cluster="south")
    answer = leases.grant(worker, 64, []).answer
    south = [item for item in answer.leases if item.expressions[0].base_rev is None]
    complete(worker, *(evaluated(answer, lease) for lease in south))
    maintenance.sweep()
    assert Expression.objects.get().attempts == 1


def test_expressions_that_nothing_names_are_collected_after_an_hour(fleet: None) -> None:
    tags.create("none", definition="//none")
    work(a_worker())
    tags.delete("none")
    assert maintenance.collect_expressions() == 0
    age("expression", "used_at")
    assert maintenance.collect_expressions() == 1
    assert not Expression.objects.exists() and not Match.objects.exists()
    assert not RebuildTarget.objects.exists()


def test_published_pending_and_previewed_expressions_are_kept(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    tags.update("gpu", definition=ANY)
    tags.create("shown", definition="//shown")
    tags.delete("shown")
    execute(
        "UPDATE expression SET preview_until = now() + interval '1 hour' WHERE text = '//shown'"
    )
    age("expression", "used_at")
    assert maintenance.collect_expressions() == 0
    execute("UPDATE expression SET preview_until = now() - interval '1 minute'")
    age("expression", "used_at")
    assert maintenance.collect_expressions() == 1
    assert set(Expression.objects.values_list("text", flat=True)) == {HAS_GPU, ANY}


def test_the_text_of_an_expression_in_the_audit_trail_is_kept(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    assert MatchChange.objects.exists()
    tags.delete("gpu")
    age("expression", "used_at")
    assert maintenance.collect_expressions() == 1
    assert Expression.objects.get().text == HAS_GPU and not Match.objects.exists()
    assert maintenance.collect_expressions() == 0
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker(name="again"))
    assert carriers("gpu") == {"a"}


def test_an_expression_that_was_published_until_now_is_kept_for_an_hour(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    # Published for long: its last use is now, not when it was named.
    age("expression", "used_at", 72)
    maintenance.collect_expressions()
    tags.update("gpu", definition=ANY)
    work(a_worker(name="again"))
    assert maintenance.collect_expressions() == 0
    assert Match.objects.filter(expression__text=HAS_GPU).exists()
    tags.update("gpu", definition=HAS_GPU)
    assert tag("gpu").pending_expression is None


# -- the tasks -------------------------------------------------------------------------------------


def test_the_sweep_publishes_and_finishes_what_a_crash_left(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    expression, partition = tag("gpu").pending_expression_id, the_partition()
    Match.objects.create(
        expression_id=expression, partition=partition, rev=1, members=b"\1" + b"\0" * 127
    )
    maintenance.sweep()
    assert carriers("gpu") == {"a"} and Rebuild.objects.get().state == "complete"


def test_reaping_answers_how_many(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    lease_one(a_worker())
    assert maintenance.reap() == 0
    age("lease", "deadline")
    assert maintenance.reap() == 1


def test_collecting_forgets_silent_workers(fleet: None) -> None:
    worker = a_worker()
    age("worker", "last_heartbeat")
    maintenance.collect()
    with pytest.raises(worker.DoesNotExist):
        worker.refresh_from_db()


def test_cleaning_deletes_old_rebuilds_and_finished_jobs(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    work(a_worker())
    old = Rebuild.objects.get().id
    rebuilds.request(["gpu"], None)
    maintenance.clean()
    assert Rebuild.objects.count() == 2 and len(jobs()) == 2
    execute("UPDATE rebuild SET finished_at = now() - interval '31 days' WHERE id = %s", [old])
    age("procrastinate_events", "at")
    maintenance.clean()
    assert not Rebuild.objects.filter(id=old).exists() and Rebuild.objects.count() == 1
    assert jobs() == [(the_partition().id, "todo")]


def test_cleaning_ends_sessions_that_have_expired(fleet: None) -> None:
    for seconds in (-1, 3600):
        session = SessionStore()
        session.set_expiry(seconds)
        session.create()
    maintenance.clean()
    assert [row.session_key for row in Session.objects.all()] == [session.session_key]


def test_cleaning_ends_old_events_of_the_audit(db: None) -> None:
    clusters.create("north")
    clusters.create("south")
    execute("UPDATE audit_event SET at = now() - interval '10 years' WHERE name = 'north'")
    maintenance.clean()
    assert list(Event.objects.values_list("name", flat=True)) == ["south"]


def test_cleaning_leaves_leased_jobs_alone(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    lease_one(a_worker())
    age("procrastinate_events", "at")
    maintenance.clean()
    assert jobs() == [(the_partition().id, "doing")]


def test_cleaning_ends_what_a_killed_server_left_running(fleet: None) -> None:
    execute(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, status) "
        "VALUES ('maintenance', 'sweep', 'doing')"
    )
    maintenance.clean()
    assert execute("SELECT FROM procrastinate_jobs WHERE task_name = 'sweep'") == []


def test_jobs_are_counted_by_status(fleet: None) -> None:
    tags.create("gpu", definition=HAS_GPU)
    lease_one(a_worker())
    put("a", "b")
    found = queue.job_counts()
    assert (found["todo"], found["doing"], found["succeeded"]) == (1, 1, 0)


# -- the thread ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "seconds"), [("reap", 2), ("sweep", 10), ("collect", 60), ("clean", 600)]
)
def test_each_task_runs_as_often_as_is_said(task: str, seconds: int) -> None:
    found = app.periodic_registry.periodic_tasks[(task, "")].croniter
    times = [found.get_next(start_time=1_000_000_007), found.get_next(), found.get_next()]
    assert [later - sooner for sooner, later in itertools.pairwise(times)] == [seconds] * 2


@pytest.mark.django_db(transaction=True)
def test_the_thread_runs_the_tasks_through_an_outage_and_stops_when_told(
    no_jobs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RESTART_SECONDS", 0.01)
    tasks = app.periodic_registry.periodic_tasks
    often = attr.evolve(tasks["reap", ""], cron="* * * * * *")
    monkeypatch.setitem(tasks, ("reap", ""), often)
    north("a")
    tags.create("gpu", definition=HAS_GPU)
    worker = a_worker()

    def expire() -> None:
        lease_one(worker)
        execute("UPDATE lease SET deadline = now() - interval '1 second'")

    expire()
    stop = threading.Event()
    running = in_thread(lambda: maintenance.run_forever(stop))
    try:
        until(lambda: not Lease.objects.exists(), "reaped")
        # All its connections are lost at once.
        execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        expire()
        until(lambda: not Lease.objects.exists(), "reaped after an outage")
    finally:
        stop.set()
    done(running)
    connection.close()


def test_samples_count_what_happened_since_the_one_before(fleet: None) -> None:
    def later() -> None:
        execute("UPDATE fleet_sample SET at = at - interval '30 seconds'")

    assert maintenance.sample() == 1
    # Another server, at the same time.
    assert maintenance.sample() == 0
    later()
    tags.create("any", definition=ANY)
    put("c", "d")
    assert maintenance.sample() == 1
    waiting = Sample.objects.latest("at")
    assert (waiting.changes, waiting.stale, waiting.jobs, waiting.workers) == (1, 1, 1, 0)
    later()
    work(a_worker())
    assert maintenance.sample() == 1
    done_ = Sample.objects.latest("at")
    assert (done_.changes, done_.stale, done_.jobs, done_.workers) == (0, 0, 0, 1)
    assert done_.verdicts == done_.nodes > 0
    execute("UPDATE fleet_sample SET at = at - interval '3 hours'")
    maintenance.sample()
    assert Sample.objects.count() == 1
