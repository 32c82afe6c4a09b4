"""The whole of Tagmill as processes: a server, workers, a real PostgreSQL, real HTTP."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from django.db import connection

from api import tokens
from api.models import SigningKey
from api.roles import Role
from fixtures import loader
from loadtest.references import documents
from loadtest.rig.http import Api
from loadtest.rig.stack import Stack, free_port, running
from tagmill.tags.models import NodeTag
from tagmill.work import queue, workers
from tagmill.work.models import Lease, Worker
from tagmill_expressions import documents as composed
from tagmill_expressions import evaluation
from tests.support.http import make_user
from tests.support.sql import database_url

PATIENCE_SECONDS = 60
LEASE_SECONDS = 2
SECRET_PART = 24


class System:
    """A fleet of `nodes` in partitions of 64 slots, served; workers are started by the tests."""

    def __init__(self, directory: Path, url: str, nodes: int) -> None:
        loader.load(nodes, seed=3)
        self.url = url
        _, worker_token = workers.issue_token("system", "all")
        _, token = tokens.issue(make_user("admin"), Role.ADMIN, days=1)
        self.stack = Stack(f"127.0.0.1:{free_port()}", worker_token, directory)
        self.token = token
        self.secrets = [token, worker_token]
        """What must be in no log, whatever happens."""
        self.connect()

    def connect(self) -> None:
        """Anew, when the server is another process."""
        self.api = Api(self.stack.url, self.token)

    def log(self, name: str) -> str:
        return (self.stack.log / f"{name}.log").read_text(errors="replace")

    def assert_nothing_leaked(self) -> None:
        secrets = [*self.secrets, *SigningKey.objects.values_list("key", flat=True)]
        for log in self.stack.log.glob("*.log"):
            text = log.read_text(errors="replace")
            # By the end of each: what says which token it is may be there.
            assert not [each for each in secrets if each[-SECRET_PART:] in text], log

    def tag(self, name: str, definition: str) -> None:
        self.api.post("tags/", {"name": name, "definition": definition})

    def state(self, name: str) -> Any:
        return self.api.get(f"tags/{name}")["state"]

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds, looking after each commit that made progress."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with psycopg.connect(self.url, autocommit=True) as listener:
            listener.execute("LISTEN tagmill_progress")
            while not condition():
                assert time.monotonic() < deadline, self.stack.log
                for _ in listener.notifies(timeout=0.05, stop_after=1):
                    pass

    def process(self, name: str) -> psutil.Process:
        return psutil.Process(self.stack.pids()[name])

    def freeze_evaluation(self, name: str) -> None:
        """What this worker leases from now on, it never completes."""
        # It registers once the child is there. Stopped any earlier, between fork and exec, the
        # child would keep its parent waiting for ever.
        self.wait(lambda: Worker.objects.filter(name=name).exists())
        for child in self.process(name).children():
            child.suspend()

    @contextlib.contextmanager
    def held_up(self, lock: str) -> Iterator[Callable[[str], None]]:
        """Nobody gets past the lock that this statement takes before the end. Gives what waits
        until the server is in the middle of a statement that has come so far: LIKE, of its first
        kilobyte."""
        with psycopg.connect(self.url) as holder:
            holder.execute(lock)
            pid = holder.info.backend_pid
            yield lambda statement: self.wait(lambda: self.waits_for(pid, statement))

    def waits_for(self, pid: int, statement: str) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE %s = ANY (pg_blocking_pids(pid)) AND query LIKE %s",
                [pid, statement],
            )
            (count,) = cursor.fetchone()
        return bool(count)

    def holds_a_lease(self, name: str) -> bool:
        return Lease.objects.filter(worker__name=name).exists()

    def assert_true(self, *names: str) -> None:
        """Every tag is, node for node, what lxml says; nothing is left to do."""
        for name in names:
            text = self.api.get(f"tags/{name}")["definition"]
            compiled = evaluation.compile(text, {})
            expected = {
                node.node_id
                for node in documents.stream()
                if compiled.matches(composed.compose(node.probes))
            }
            found = NodeTag.objects.filter(tag__name=name).values_list("node_id", flat=True)
            assert set(found) == expected
        # Vocabularies may still be learnt.
        self.wait(lambda: not any(queue.job_counts()[status] for status in ("todo", "doing")))
        assert not Lease.objects.exists()


@pytest.fixture
def settings_of_processes(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> pytest.MonkeyPatch:
    from tagmill import config

    for name, value in {
        "DATABASE_URL": database_url(),
        "TAGMILL_VAR": str(tmp_path / "var"),
        "TAGMILL_PARTITION_SLOTS": "64",
        "TAGMILL_LEASE_SECONDS": str(LEASE_SECONDS),
        "TAGMILL_HEARTBEAT_SECONDS": "1",
        "TAGMILL_EVALUATION_SECONDS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    config.load.cache_clear()
    return monkeypatch


@pytest.fixture
def settling(settings_of_processes: pytest.MonkeyPatch) -> None:
    """Ask for it before `system`: its servers settle what is uploaded, whatever time it takes."""
    settings_of_processes.setenv("TAGMILL_SETTLE_SECONDS", "5")


@pytest.fixture
def system(settings_of_processes: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[System]:
    from tagmill import config

    made = System(tmp_path / "log", database_url(), nodes=256)
    with running(made.stack):
        made.stack.start_server()
        yield made
    made.assert_nothing_leaked()
    settings_of_processes.undo()
    config.load.cache_clear()
    with psycopg.connect(database_url(), autocommit=True) as cleaner:
        cleaner.execute("TRUNCATE procrastinate_jobs CASCADE")
