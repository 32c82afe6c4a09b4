"""A real API server, as a process, on the test's database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from django.db import connection

from loadtest.rig.stack import Stack, free_port, running

ROOT = Path(__file__).resolve().parents[2]


def database_url() -> str:
    """The test database, for another process."""
    found = connection.settings_dict
    host = found["HOST"]
    user = quote(found["USER"] or "", safe="")
    password = f":{quote(found['PASSWORD'], safe='')}" if found["PASSWORD"] else ""
    port = f":{found['PORT']}" if found["PORT"] else ""
    if host.startswith("/"):
        query = {**found["OPTIONS"], "host": host}
        return f"postgresql://{user}{password}@{port}/{found['NAME']}?{urlencode(query)}"
    return (
        f"postgresql://{user}{password}@{host}{port}/{found['NAME']}?{urlencode(found['OPTIONS'])}"
    )


@pytest.fixture(scope="module")
def shared_stack(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    with pytest.MonkeyPatch.context() as patch:
        yield from server(tmp_path_factory.mktemp("server"), patch)


@pytest.fixture
def stack(transactional_db: None, shared_stack: Stack) -> Stack:
    """A server that is ready, without the periodic tasks: one for all tests of a module, which
    leave it running and idle."""
    shared_stack.check()
    return shared_stack


@pytest.fixture
def own_stack(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stack]:
    """As `stack`, a server for one test alone: it may stop it, or count what it has done."""
    yield from server(tmp_path, monkeypatch)


def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.setenv("DATABASE_URL", database_url())
    monkeypatch.setenv("TAGMILL_VAR", str(tmp_path / "var"))
    with running(Stack(f"127.0.0.1:{free_port()}", "", tmp_path / "log")) as stack:
        stack.start_server("--no-maintenance")
        yield stack


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py serve` to its end, which must be near."""
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "serve", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
