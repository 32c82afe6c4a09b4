"""Headers of bytes that are not UTF-8 are wrong or ignored, like others: never an error of ours."""

from __future__ import annotations

import json
import socket
from uuid import UUID

import pytest

from loadtest.rig.stack import Stack
from tests.server.test_serve import call, token_of, worker

BYTES = "\xff\xfe=1"
NOBODY = UUID(int=0)


@pytest.mark.parametrize("scheme", ["Worker", "Token", "Bearer", ""])
def test_a_token_of_any_bytes_is_a_wrong_token(stack: Stack, scheme: str) -> None:
    for method, path in (
        ("POST", "/api/v1/workers/lease"),
        ("GET", "/api/v1/partitions/1/nodes"),
        ("GET", f"/api/v1/rebuilds/{NOBODY}/events"),
        ("GET", f"/api/v1/previews/{NOBODY}/events"),
        ("POST", "/api/v1/nodes/import"),
        ("POST", "/api/v1/previews"),
        ("PUT", "/api/v1/nodes/a/document"),
    ):
        response, data = call(
            stack, method, path, b"{}", Authorization=f"{scheme} {BYTES}", Prefer="wait=1"
        )
        assert (response.status, json.loads(data)["code"]) == (401, "unauthorized"), path


def test_a_head_that_is_no_http_ends_the_connection_and_nothing_else(own_stack: Stack) -> None:
    host, _, port = own_stack.listen.partition(":")
    for head in (b"GET /a\x1b b HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", b"GET / HTTP/1.1\r\nX: "):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(head)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    assert call(own_stack, "GET", "/healthz")[0].status == 200
    assert "Traceback" not in (own_stack.log / "server.log").read_text()


def kind(path: str) -> str:
    return "application/x-ndjson" if path.endswith("import") else "application/json"


def test_other_headers_may_hold_any_bytes(stack: Stack) -> None:
    bearer, uuid = worker(stack)
    token = token_of("operator")
    lease = json.dumps({"worker": uuid})
    others = {"Prefer": BYTES, "Accept_Encoding": BYTES, "Cookie": BYTES}
    for method, path, body, header, status in (
        ("POST", "/api/v1/workers/lease", lease, bearer, 200),
        ("GET", f"/api/v1/partitions/1/nodes?incarnation={NOBODY}", None, bearer, 410),
        ("GET", f"/api/v1/rebuilds/{NOBODY}/events", None, token, 404),
        ("GET", f"/api/v1/previews/{NOBODY}", None, token, 404),
        ("POST", "/api/v1/nodes/import", b"", token, 200),
        ("GET", "/healthz", None, "", 200),
        ("GET", "/readyz", None, "", 200),
        ("GET", "/metrics", None, "", 200),
    ):
        # A condition of a write is another matter: whatever it is, it is refused.
        extra = {"If_None_Match": BYTES} if method == "GET" else {"Content_Type": kind(path)}
        response, data = call(stack, method, path, body, Authorization=header, **others, **extra)
        assert response.status == status, (path, data)
    assert call(stack, "GET", "/metrics", X_Forwarded_For=BYTES)[0].status == 403


def test_a_session_of_any_bytes_is_nobody(stack: Stack) -> None:
    path = f"/api/v1/rebuilds/{NOBODY}/events"
    assert call(stack, "GET", path, Cookie=f"sessionid={BYTES}")[0].status == 401
