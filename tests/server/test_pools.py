"""What keeps leases alive does not wait for other requests."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection

from loadtest.rig.stack import Stack
from tagmill.fleet import incarnation
from tests.server.test_serve import call, token_of, worker
from tests.support.servers import server
from tests.support.sql import database_url
from tests.support.threads import in_thread, until

THREADS = 2


@pytest.fixture(scope="module")
def shared_small(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("small")
    yield from server(folder, TAGMILL_THREADS=str(THREADS), TAGMILL_DRAIN_SECONDS="0.2")


@pytest.fixture
def small(transactional_db: None, shared_small: Stack) -> Stack:
    """A server with few threads for REST. The last test ends it."""
    return shared_small


def blocked_by(pid: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", [pid]
        )
        (count,) = cursor.fetchone()
    return int(count)


def test_leases_are_kept_while_every_rest_thread_waits(small: Stack) -> None:
    header, uuid = worker(small)
    token = token_of("viewer")
    with psycopg.connect(database_url()) as holder:
        holder.execute("LOCK TABLE node IN ACCESS EXCLUSIVE MODE")
        slow = [
            in_thread(
                lambda number=number: (
                    call(small, "GET", f"/api/v1/nodes/{number}", Authorization=token)[0].status
                )
            )
            for number in range(THREADS + 2)
        ]
        until(lambda: blocked_by(holder.info.backend_pid) == THREADS, "all threads to wait")
        for path, message in (
            ("heartbeat", {"leases": []}),
            ("fail", {"leases": [], "reason": "stopping"}),
            ("complete", {"incarnation": str(incarnation.current()), "results": []}),
        ):
            response, data = call(
                small,
                "POST",
                f"/api/v1/workers/{path}",
                json.dumps({"worker": uuid, **message}),
                Authorization=header,
                Content_Type="application/json",
            )
            assert response.status == 200, data
        assert not any(future.done() for future in slow)
    assert {future.result(30) for future in slow} == {404}


def test_a_server_ends_although_a_request_does_not(small: Stack) -> None:
    token = token_of("viewer")
    with psycopg.connect(database_url()) as holder:
        holder.execute("LOCK TABLE node IN ACCESS EXCLUSIVE MODE")
        cut = in_thread(lambda: call(small, "GET", "/api/v1/nodes/", Authorization=token))
        until(lambda: blocked_by(holder.info.backend_pid) == 1, "the request to wait")
        process = small.signal_server(signal.SIGTERM)
        until(lambda: small_log(small, "requests cut off"), "the drain to end")
    # The thread goes on, and would write its answer through a reactor that has stopped. It has as
    # long as the drain once more, and not the five seconds of a server with the usual drain.
    assert process.wait(4) == 0
    with pytest.raises(ConnectionError):
        cut.result(20)


def small_log(stack: Stack, event: str) -> bool:
    return event in (stack.log / "server.log").read_text()
