"""Every test that needs SQL runs on a real PostgreSQL: DATABASE_URL's, or an embedded one that is
the tests' own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import transaction
from django.test import TransactionTestCase
from hypothesis import settings as hypothesis

from tagmill import database
from tagmill.config import load
from tagmill_wire import collector
from tests.support import template
from tests.support.sql import empty

# The same cases at each run, however busy the machine is; the long proofs draw others.
hypothesis.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.load_profile("repeatable")
# Nothing of these databases needs to survive a crash, and each flush would wait for the disk.
CARELESS = ("fsync", "full_page_writes", "synchronous_commit")
# Most tests are about what workers do, and an upload is to leave it to them. Those about settling,
# and the random walk, switch it on.
os.environ.setdefault("TAGMILL_SETTLE_SECONDS", "0")
# What takes ten seconds or more.
LONG = (
    "tests/stateful/",
    "tests/loadtest/test_runs.py",
    "tests/system/",
    "tests/kernel/test_differential.py",
    "tests/kernel/test_fleet.py",
    "tests/server/test_processes.py",
)
collector.starting()


def pytest_configure(config: pytest.Config) -> None:
    from django.conf import settings

    # pytest finds our packages by its own setting; what the tests start finds them as well.
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, config.getini("pythonpath")))

    # pytest-django has read the settings before this module could start the embedded server.
    entry = settings.DATABASES["default"]
    entry.update(database.django_settings(load()))
    # Concurrent runs on one server may each name a test database of their own.
    name = os.environ.get("TAGMILL_TEST_DB", "tagmill")
    entry.setdefault("TEST", {})["NAME"] = f"test_{name}"
    TransactionTestCase._fixture_teardown = _empty  # type: ignore[method-assign, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: xdist gives each process a part of the list, of which those that are done
    take over what the others have not begun, and a long test that begins last would run alone."""
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.nodeid.startswith(LONG)]
    others = [item for item in items if not item.nodeid.startswith(LONG)]
    size = -(-len(items) // parts)
    items.clear()
    for part in range(parts):
        # Tests of one file, and what they share, stay together.
        files = dict.fromkeys(item.path for item in long)
        mine = set(list(files)[part::parts])
        first = [item for item in long if item.path in mine]
        items += first + others[: size - len(first)]
        del others[: size - len(first)]


def pytest_collection_finish() -> None:
    """All tests and what they import are here, and stay: looking through them again for cycles
    would take longer the more tests there are."""
    collector.started()


def start_database() -> None:
    """The embedded server, beside that of the checkout's own data. Does nothing where there is a
    DATABASE_URL; with several test processes, that is so in all but the first."""
    loaded = load()
    if loaded.database_url:
        return
    database.ensure_running(loaded.model_copy(update={"var": loaded.var / "tests"}))
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        for name in CARELESS:
            server.execute(f"ALTER SYSTEM SET {name} = off")
        server.execute("SELECT pg_reload_conf()")
    template.ensure(os.environ["DATABASE_URL"])


start_database()


def _empty(_: TransactionTestCase) -> None:
    """After a test that commits. Django's flush truncates every table and makes permissions and
    groups anew, which takes more than most of these tests; and it knows no table of the queue."""
    with transaction.atomic():
        # Foreign keys are looked at when the transaction commits, so that any order will do.
        empty()


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Settings for one test, as the environment would give them."""

    def change(**settings: object) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"TAGMILL_{name.upper()}", str(value))
        load.cache_clear()

    yield change
    monkeypatch.undo()
    load.cache_clear()


@pytest.fixture
def no_jobs(transactional_db: None) -> None:
    """An empty queue, as the test before left it, and changes that other connections see."""
