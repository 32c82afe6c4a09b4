"""A real API server, as a process, on the test's database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.rig.stack import Stack
from tests.support.servers import server


@pytest.fixture(scope="package")
def shared_stack(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    origins = {"TAGMILL_CORS_ORIGINS": "https://other.example.com,https://tags.example.com"}
    yield from server(tmp_path_factory.mktemp("server"), **origins)


@pytest.fixture
def stack(transactional_db: None, shared_stack: Stack) -> Stack:
    """A server that is ready, without the periodic tasks: one for all tests of this folder, which
    leave it running and idle."""
    shared_stack.check()
    return shared_stack


@pytest.fixture
def own_stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    """As `stack`, a server for one test alone: it may stop it, or count what it has done."""
    yield from server(tmp_path)
