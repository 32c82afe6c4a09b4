"""What the server's log says of requests."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.server.logsink import Sink
from loadtest.rig.stack import ROOT, Stack, free_port
from tests.server.test_serve import call
from tests.support.sql import database_url
from tests.support.threads import until

FULL = Path("/dev/full")


def test_each_refused_request_is_one_line(own_stack: Stack) -> None:
    refused = (
        ("POST", "/api/v1/auth/token", b"{no json", 400),
        ("GET", "/api/v1/nodes/", None, 401),
        ("GET", "/nowhere", None, 404),
        ("POST", "/admin/login/", b"", 403),
        ("PUT", "/api/v1/definitions/lint", b"{}", 401),
    )
    for method, path, body, status in refused:
        assert (
            call(own_stack, method, path, body, Content_Type="application/json")[0].status == status
        )
    assert call(own_stack, "GET", "/", Host="elsewhere")[0].status == 400

    def lines() -> list[dict[str, Any]]:
        """Every line is JSON: no thread died with a traceback."""
        text = (own_stack.log / "server.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def requests() -> list[tuple[str, int]]:
        found = [line for line in lines() if line["event"] == "request"]
        return [(line["path"], line["status"]) for line in found]

    until(lambda: len(requests()) > len(refused), "the last line")
    expected = [(path, status) for _, path, _, status in refused] + [("/", 400)]
    assert sorted(requests()) == sorted(expected)
    logger = {line["logger"] for line in lines()}
    assert logger == {"tagmill.access", "tagmill.server"}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["full", "closed", "stuck"])
def test_a_log_that_takes_nothing_stops_no_request(
    kind: str, pipe: tuple[int, int], tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    serve = ("serve", "--no-maintenance", "--listen", listen)
    command = [sys.executable, str(ROOT / "manage.py"), *serve]
    if kind == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    # Nobody reads the pipe: it takes 64 KiB, and then whoever writes waits.
    log = os.open(FULL, os.O_WRONLY) if kind == "full" else os.dup(pipe[1])
    environment = os.environ | {"DATABASE_URL": database_url(), "TAGMILL_VAR": str(tmp_path)}
    server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    os.close(log)
    stack = Stack(listen, "", tmp_path / "log")
    try:
        until(lambda: server.poll() is not None or answers(stack), "ready")
        for _ in range(30):
            assert call(stack, "GET", f"/{'x' * 4000}")[0].status == 404
        page = call(stack, "GET", "/metrics")[1].decode()
        lost = next(line for line in page.splitlines() if line.startswith("tagmill_lost_log"))
        assert (float(lost.split()[1]) >= 30) == (kind == "full")
    finally:
        server.terminate()
        assert server.wait(20) == 0


def answers(stack: Stack) -> bool:
    try:
        return call(stack, "GET", "/healthz")[0].status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_what_a_full_pipe_did_not_take_is_counted_and_said_later(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    sink = Sink(writing, most=100_000)
    line = "x" * 9_999 + "\n"
    # The pipe takes 64 KiB, one line is on its way, and ten wait.
    for _ in range(40):
        sink.write(line)
    assert 40 - 19 <= sink.lost <= 40 - 10
    expected = (40 - sink.lost) * len(line)
    found = b""
    while len(found) < expected:
        found += os.read(reading, 1 << 20)
    assert found.decode() == line * (40 - sink.lost)
    sink.drain()
    sink.write("more\n")
    sink.drain()
    assert os.read(reading, 100) == b"more\n"


def test_a_line_that_cannot_be_written_is_left_out_whole(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    target = os.open(FULL, os.O_WRONLY)
    sink = Sink(target)
    sink.write("lost\n")
    sink.drain()
    assert sink.lost == 1
    os.dup2(writing, target)
    sink.write("kept\n")
    sink.drain()
    assert os.read(reading, 100) == b"kept\n"
    os.close(target)
