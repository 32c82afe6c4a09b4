"""`doctor` finds what is wrong, on a real database, and says what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from api import doctor
from tagmill.config import Config, load
from tagmill.fleet import incarnation
from tagmill.flows import diagnosis
from tagmill.flows.diagnosis import Facts, Finding, Limits, State
from tagmill.program import ROOT
from tagmill.tags import tags
from tagmill.work import workers
from tagmill.work.models import Lease, Worker
from tests.support.fleet import HAS_GPU, north, the_partition
from tests.support.sql import database_url, execute
from tests.support.threads import done, in_thread, until, until_blocked

GOOD = Facts(180_000, False, True, True, True, "UTF8", 0.0, 1 << 30, 1000, 3)


def found(check: str, config: Config | None = None, limits: Limits | None = None) -> list[Finding]:
    """What is wrong in one respect."""
    everything = doctor.examine(config or load(), limits)
    wrong = [one for one in everything if one.check == check and one.state is not State.OK]
    assert all(one.todo for one in wrong)
    return wrong


def facts(**changed: Any) -> list[Finding]:
    judged = diagnosis.of_server(GOOD._replace(clock=time.time(), **changed), 40, 97)
    return [one for one in judged if one.state is not State.OK]


@contextmanager
def other() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url(), autocommit=True) as made:
        yield made


def test_a_new_database_has_nothing_wrong_but_what_these_tests_do_without(db: None) -> None:
    checks = {one.check for one in doctor.examine(load())}
    assert checks == {
        *("settings", "permissions", "disk", "database", "durability", "connections", "locks"),
        *("bloat", "clock", "rights", "tasks", "documents", "workers", "cache"),
    }
    for check in (
        "database",
        "connections",
        "bloat",
        "clock",
        "rights",
        "tasks",
        "documents",
        "workers",
        "cache",
    ):
        assert not found(check)
    # The tests' server does not write to its disk.
    assert "fsync is off" in found("durability")[0].message


def test_what_the_server_says_of_itself_is_judged() -> None:
    assert facts() == []
    for changed, says in (
        ({"version": 130_005}, "PostgreSQL 13"),
        ({"is_replica": True}, "replica"),
        ({"encoding": "SQL_ASCII"}, "SQL_ASCII"),
        ({"fsync": False}, "fsync"),
        ({"commits_wait": False}, "synchronous_commit"),
        ({"autovacuum": False}, "autovacuum"),
        ({"frozen_age": 1_500_000_000}, "transactions run out"),
        ({"connections": 90}, "90 are taken"),
    ):
        (one,) = facts(**changed)
        assert says in one.message and one.todo
    clock = diagnosis.of_server(GOOD._replace(clock=time.time() - 60), 40, 97)[-1]
    assert clock.state is State.WARNING and "60 s apart" in clock.message


def test_a_variable_that_is_no_setting(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAGMILL_THREADS", "TAGMILL_WORKER_TOKEN", "TAGMILL_EVALUATOR"):
        monkeypatch.setenv(name, "4")
    before = found("settings")
    monkeypatch.setenv("TAGMILL_THREADZ", "4")
    monkeypatch.setenv("TAGMILL_", "4")
    said = [(one.message, one.todo) for one in found("settings") if one not in before]
    said_of = dict(said)
    assert said_of["TAGMILL_THREADZ is no setting, and changes nothing"].endswith(
        "TAGMILL_THREADS?"
    )
    assert len(said) == 2


def test_threads_and_processes_that_want_too_many_connections(db: None) -> None:
    (one,) = found("connections", Config(processes="32", threads=64))
    assert one.state is State.FAILURE and "TAGMILL_PROCESSES" in one.todo


def test_who_waits_for_a_lock_and_who_keeps_a_transaction_open(transactional_db: None) -> None:
    limits = Limits(lock_seconds=0, transaction_seconds=0)
    with other() as holder, other() as waiter:
        with holder.transaction():
            holder.execute("LOCK TABLE cluster")
            waits = in_thread(lambda: waiter.execute("LOCK TABLE cluster; SELECT 1"))
            until_blocked()
            locks = [one for one in diagnosis.database(40, limits) if one.check == "locks"]
            (waiting,) = (one for one in locks if "waits" in one.message)
            pid = holder.info.backend_pid
            assert f"lock of {pid}" in waiting.message
            assert f"pg_terminate_backend({pid})" in waiting.todo
            said = [one.message for one in locks]
            assert any(f"process {pid} " in one and "open for" in one for one in said)
        done(waits)


def test_tables_of_dead_rows_and_logs_that_nobody_reads(transactional_db: None) -> None:
    limits = Limits(dead_rows=0)
    with other() as session:
        # Other tests leave dead rows, too, and the largest numbers are named.
        session.execute("SELECT pg_stat_reset()")
        session.execute("INSERT INTO signing_key SELECT 1, 'x'")
        session.execute(
            "DO $$ BEGIN FOR i IN 1..2000 LOOP UPDATE signing_key SET key = i; END LOOP; END $$"
        )
        session.execute("DELETE FROM signing_key")
        session.execute("SELECT pg_stat_force_next_flush()")
        name = session.execute("SELECT 'doctor_' || pg_backend_pid()").fetchone()
        assert name
        session.execute("SELECT pg_create_physical_replication_slot(%s, true)", name)
        try:

            def says() -> str:
                wrong = found("bloat", None, limits)
                return " ".join(one.message + one.todo for one in wrong)

            until(lambda: "signing_key" in says(), "the dead rows are counted")
            said = says()
        finally:
            session.execute("SELECT pg_drop_replication_slot(%s)", name)
    assert name[0] in said
    assert "VACUUM signing_key" in said


def test_a_role_without_rights(transactional_db: None) -> None:
    execute("CREATE ROLE doctor_nobody")
    try:
        execute("SET ROLE doctor_nobody")
        (one,) = found("rights")
    finally:
        execute("RESET ROLE")
        execute("DROP ROLE doctor_nobody")
    assert one.state is State.FAILURE and "GRANT" in one.todo


def test_leases_that_nobody_takes_back(db: None) -> None:
    north("n1")
    token, _ = workers.issue_token("w", "all")
    Lease.objects.create(
        worker=Worker.objects.create(
            token=token, name="w", evaluator="lxml", version="0", incarnation=incarnation.current()
        ),
        partition=the_partition(),
        job_id=1,
        rev=1,
        deadline="2020-01-01T00:00Z",
    )
    (one,) = found("tasks")
    assert "1 leases ended long ago" in one.message and "--no-maintenance" in one.todo


def test_documents_that_could_not_be_read(db: None) -> None:
    execute("UPDATE document_packing SET damaged = 2")
    execute(
        "INSERT INTO document_packing (id, not_before, damaged) VALUES (1, now(), 2)"
        " ON CONFLICT DO NOTHING"
    )
    (one,) = found("documents")
    assert "2 documents could not be read" in one.message and "docs/documents.md" in one.todo


def test_a_cluster_without_workers_and_definitions_that_failed(db: None) -> None:
    north("n1")
    tags.create("gpu", definition=HAS_GPU)
    (one,) = found("workers")
    assert "1 matches of cluster north wait" in one.message and "worker_token" in one.todo
    execute("UPDATE expression SET failed_at = now()")
    assert "definitions of 1 tags failed" in found("workers")[-1].message


def test_a_cache_that_keeps_nothing(db: None, settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    assert "nobody can log in" in found("cache")[0].message


def test_a_disk_that_is_nearly_full(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))
    for free, state in ((3 << 30, State.WARNING), (1 << 20, State.FAILURE)):
        monkeypatch.setattr(
            shutil, "disk_usage", lambda _, free=free: usage(1 << 40, (1 << 40) - free, free)
        )
        (one,) = found("disk")
        assert one.state is state


def test_a_data_directory_that_cannot_be_used_and_a_key_that_others_read(
    db: None, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    said = [one.message for one in found("permissions", Config(var=tmp_path / "file"))]
    assert any("cannot be written" in one for one in said)
    (tmp_path / "secret_key").write_text("key")
    (tmp_path / "secret_key").chmod(0o644)
    said = [one.todo for one in found("permissions", Config(var=tmp_path))]
    assert f"chmod 600 {tmp_path / 'secret_key'}" in said


def test_settings_that_do_not_fit_each_other(db: None) -> None:
    said = [one.message for one in found("settings", Config(trusted_proxies=1))]
    assert any("TAGMILL_ALLOWED_HOSTS" in one for one in said)
    said = [one.message for one in found("settings", Config(listen="0.0.0.0:80"))]
    assert any("without TLS" in one for one in said)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "doctor", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_database_that_does_not_answer_is_a_finding_and_the_code_is_1() -> None:
    done = run("--json", DATABASE_URL="postgresql://me:hidden@127.0.0.1:1/tags")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["ok"] is False
    assert "does not answer" in said["findings"][-1]["message"]
    assert said["findings"][-1]["todo"] and "hidden" not in done.stdout


def test_a_bad_setting_is_a_finding_and_the_code_is_2() -> None:
    done = run("--json", TAGMILL_THREADS="many")
    assert done.returncode == 2
    assert "TAGMILL_THREADS" in json.loads(done.stdout)["findings"][0]["message"]


def test_migrations_that_are_missing(transactional_db: None) -> None:
    ((_, newest),) = MigrationLoader(connection).graph.leaf_nodes("api")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE name = %s", [newest])
    try:
        done = run(DATABASE_URL=database_url())
    finally:
        execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('api', %s, now())", [newest]
        )
    assert done.returncode == 1
    assert f"1 migrations are missing, api.{newest}" in done.stdout
    assert "manage.py migrate" in done.stdout
