"""How much of a body is read, and from whom."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from api import limits
from loadtest.rig.stack import Stack
from tagmill.fleet import incarnation
from tests.server.test_serve import call, token_of, worker
from tests.support.fleet import north

MIB = 1024 * 1024
DOCUMENT = "/api/v1/nodes/a/document"
COMPLETE = "/api/v1/workers/complete"


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size // (64 * 1024)):
        yield b" " * (64 * 1024)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(stack: Stack, is_chunked: bool) -> None:
    limit = limits.DEFINITION.size
    headers = {"Content_Type": "application/json", "Authorization": token_of("operator")}
    body: Any = b" " * (limit + 1)
    if is_chunked:
        headers["Transfer_Encoding"] = "chunked"
        body = chunks(2 * limit)
    response, data = call(stack, "POST", "/api/v1/tags/", body, **headers)
    assert response.status == 413
    problem = json.loads(data)
    assert (problem["code"], problem["limit"]) == ("too_large", limit)
    assert response.getheader("Content-Type") == "application/problem+json"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_before_it_has_ended(
    stack: Stack, is_chunked: bool
) -> None:
    limit = limits.DEFINITION.size
    host, _, port = stack.listen.partition(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=30)) as client:
        client.putrequest("POST", "/api/v1/tags/")
        client.putheader("Authorization", token_of("operator"))
        client.putheader("Content-Type", "application/json")
        if is_chunked:
            client.putheader("Transfer-Encoding", "chunked")
        else:
            client.putheader("Content-Length", str(limit + 1))
        client.endheaders()
        if is_chunked:
            client.send(b"%x\r\n" % (2 * limit) + b" " * (limit + 1))
        assert client.getresponse().status == 413


def test_a_stranger_cannot_fill_the_servers_memory(stack: Stack) -> None:
    """Small objects take thirty times their text."""
    assert call(stack, "POST", "/api/v1/auth/token", b"{}", Content_Type="application/json")
    server = psutil.Process(stack.pids()["server"])
    before = server.memory_info().rss
    body = b'{"username":[' + b"{}," * (5 * MIB) + b"{}]}"

    def send(path: str) -> int:
        return call(stack, "POST", path, body, Content_Type="application/json")[0].status

    with ThreadPoolExecutor() as pool:
        paths = ("/api/v1/auth/token", "/api/v1/auth/token", COMPLETE, "/api/v1/nodes/")
        statuses = list(pool.map(send, paths))
    assert statuses == [413, 413, 401, 401]
    assert server.memory_info().rss - before < 32 * MIB


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", DOCUMENT), ("POST", COMPLETE), ("POST", "/api/v1/nodes/")]
)
@pytest.mark.parametrize("header", ["", "Token wrong", "Worker wrong"])
def test_a_large_body_is_not_read_from_a_stranger(
    stack: Stack, method: str, path: str, header: str
) -> None:
    headers = {"Authorization": header} if header else {}
    answer = first_line(stack, method, path, {**headers, "Content-Length": str(2 * MIB)})
    assert answer == b"HTTP/1.1 401 Unauthorized"
    chunked = {**headers, "Transfer_Encoding": "chunked"}
    response, data = call(stack, method, path, chunks(2 * MIB), **chunked)
    assert (response.status, json.loads(data)["code"]) == (401, "unauthorized")


def test_a_large_body_is_asked_for_when_its_sender_is_known(stack: Stack) -> None:
    bearer, uuid = worker(stack)
    length = {"Content-Length": str(2 * MIB)}
    for path, header in ((COMPLETE, bearer), ("/api/v1/nodes/", token_of("operator"))):
        answer = first_line(stack, "POST", path, {"Authorization": header, **length})
        assert answer == b"HTTP/1.1 100 Continue"
    message = {"worker": uuid, "incarnation": str(incarnation.current()), "results": []}
    body = json.dumps(message).encode().ljust(2 * MIB)
    response, data = call(
        stack, "POST", COMPLETE, body, Authorization=bearer, Content_Type="application/json"
    )
    assert (response.status, json.loads(data)) == (200, {"results": []})


def test_a_large_document_is_stored_whole_or_in_chunks(stack: Stack) -> None:
    north("a")
    token = token_of("operator")
    for number, is_chunked in enumerate((False, True)):
        xml = b"<node id='%d'>%s</node>" % (number, b"x" * 3 * MIB)
        headers = {"Authorization": token, "Content_Type": "application/xml"}
        body: Any = xml
        if is_chunked:
            headers["Transfer_Encoding"] = "chunked"
            body = iter([xml])
        response, data = call(stack, "PUT", DOCUMENT, body, **headers)
        assert (response.status, json.loads(data)["outcome"]) == (200, "updated")
    assert call(stack, "GET", DOCUMENT, Authorization=token)[1] == xml


def first_line(stack: Stack, method: str, path: str, headers: dict[str, str]) -> bytes:
    """What the server says to headers that announce a body."""
    host, _, port = stack.listen.partition(":")
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Expect: 100-continue"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return connection.makefile("rb").readline().strip()
