"""Statements and locks of requests end, and the answer says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from loadtest.rig.stack import Stack
from tagmill.database import MAINTENANCE_SECONDS
from tagmill.flows import maintenance
from tests.server.test_serve import LEASE, call, token_of, worker
from tests.support.servers import server
from tests.support.sql import database_url


@pytest.fixture(params=[("0.2", "5"), ("5", "0.2")], ids=["statement", "lock"])
def hasty(
    request: pytest.FixtureRequest, transactional_db: None, tmp_path: Path
) -> Iterator[Stack]:
    statement, lock = request.param
    yield from server(tmp_path, TAGMILL_STATEMENT_SECONDS=statement, TAGMILL_LOCK_SECONDS=lock)


def test_what_takes_too_long_is_a_problem_that_says_so(
    hasty: Stack, request: pytest.FixtureRequest
) -> None:
    token, (bearer, uuid) = token_of("viewer"), worker(hasty)
    setting = f"TAGMILL_{request.node.callspec.id.upper()}_SECONDS"
    with psycopg.connect(database_url()) as holder:
        holder.execute("LOCK TABLE node, worker IN ACCESS EXCLUSIVE MODE")
        for method, path, body, header in (
            ("GET", "/api/v1/nodes/", None, token),
            ("POST", LEASE, json.dumps({"worker": uuid}), bearer),
        ):
            response, data = call(hasty, method, path, body, Authorization=header)
            problem = json.loads(data)
            assert (response.status, problem["code"]) == (503, "database_busy"), path
            assert setting in problem["detail"]
            assert response.headers["Retry-After"]
    assert call(hasty, "GET", "/api/v1/nodes/", Authorization=token)[0].status == 200


def test_a_periodic_task_may_take_longer(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'")
            found.append(cursor.fetchone()[0])

    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '1s'")
    maintenance.bounded(look)()
    assert found == [MAINTENANCE_SECONDS * 1000]
