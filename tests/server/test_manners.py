"""The manners of what is answered natively, and of pages of other origins."""

from __future__ import annotations

import gzip
import http.client
import json

import pytest
import zstandard

from api import packing
from loadtest.rig.stack import Stack
from tagmill.fleet import clusters
from tests.server.test_serve import call, token_of
from tests.support.fleet import BARE, GPU, put

ORIGIN = "https://tags.example.com"


def test_pages_of_the_origins_that_are_named_may_ask(stack: Stack) -> None:
    asked = {"Origin": ORIGIN, "Access_Control_Request_Method": "PUT"}
    for path in ("/api/v1/tags/", "/api/v1/changes", "/api/v1/nodes/a/document"):
        answer, body = call(stack, "OPTIONS", path, **asked)
        assert (answer.status, body) == (204, b"")
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "PUT" in answer.headers["Access-Control-Allow-Methods"]
        assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
        got, _ = call(stack, "GET", path, Origin=ORIGIN)
        assert got.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "ETag" in got.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in got.headers
        stranger, _ = call(stack, "GET", path, Origin="https://evil.example.com")
        assert "Access-Control-Allow-Origin" not in stranger.headers


def test_every_answer_has_the_id_of_its_request_once(stack: Stack) -> None:
    viewer = {"Authorization": token_of("viewer")}
    for path in (
        "/api/v1/tags/",
        "/api/v1/changes",
        "/api/v1/nothing",
        "/healthz",
        "/api/v1/nodes",
    ):
        answer, _ = call(stack, "GET", path, X_Request_Id="mine-1", **viewer)
        assert answer.headers.get_all("X-Request-Id") == ["mine-1"], path
        made, _ = call(stack, "GET", path, **viewer)
        assert len(made.headers["X-Request-Id"]) == 32
    logged = [
        json.loads(line)
        for line in (stack.log / "server.log").read_text().splitlines()
        if "mine-1" in line
    ]
    assert "/api/v1/changes" in {line["path"] for line in logged}


def test_long_native_answers_are_packed_where_the_client_takes_it(stack: Stack) -> None:
    clusters.create("north")
    put(*(f"n{number}" for number in range(20)))
    viewer = {"Authorization": token_of("viewer")}
    for path in ("/api/v1/changes?since=0", "/metrics"):
        plain, whole = call(stack, "GET", path, **viewer)
        assert plain.headers["Content-Encoding"] is None and len(whole) > packing.MIN_BYTES
        for accepted, unpack in (("gzip", gzip.decompress), ("gzip, zstd", unpacked)):
            answer, data = call(stack, "GET", path, Accept_Encoding=accepted, **viewer)
            assert answer.headers["Content-Encoding"] == accepted.rpartition(" ")[2]
            assert "Accept-Encoding" in answer.headers["Vary"]
            assert len(data) < len(whole) and unpack(data)[:9] == whole[:9]
    answer, _ = call(stack, "GET", "/healthz", Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] is None


def unpacked(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


def test_native_addresses_say_what_they_take(stack: Stack) -> None:
    for path, methods in (("/api/v1/changes", {"GET"}), ("/api/v1/workers/lease", {"POST"})):
        answer, body = call(stack, "OPTIONS", path)
        assert (answer.status, body) == (204, b"")
        assert methods <= set(answer.headers["Allow"].split(", "))
    for name in ("import", "update", "delete"):
        answer, _ = call(stack, "OPTIONS", f"/api/v1/nodes/{name}")
        assert (answer.status, answer.headers["Allow"]) == (204, "POST, OPTIONS")


ONCE = ("X-Request-Id", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/tags", 401),
        ("GET", "/api/v1/nodes/?tag=nope", 401),
        ("GET", "/api/v1/changes", 401),
        ("PUT", "/api/v1/nodes/a/document", 401),
        ("POST", "/api/v1/nodes/import", 401),
        ("PATCH", "/api/v1/changes", 405),
        ("PATCH", "/api/v1/tags/", 401),
        ("OPTIONS", "/api/v1/events", 204),
        ("GET", "/healthz", 200),
        ("GET", "/nope", 404),
    ],
)
def test_every_answer_has_its_id_and_the_headers_for_browsers_once(
    stack: Stack, method: str, path: str, status: int
) -> None:
    answer, _ = call(stack, method, path)
    assert answer.status == status
    found = {name: answer.headers.get_all(name) or [] for name in ONCE}
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(ONCE, 1)


def test_native_addresses_refuse_as_others_do(stack: Stack) -> None:
    operator = {"Authorization": token_of("operator")}
    for path in ("changes", "events", "tags/"):
        answer, body = call(stack, "GET", f"/api/v1/{path}", Accept="image/png", **operator)
        assert (answer.status, json.loads(body)["code"]) == (406, "not_acceptable"), path
        answer, _ = call(stack, "PATCH", f"/api/v1/{path}", **operator)
        assert (answer.status, "OPTIONS" in answer.headers["Allow"]) == (405, True), path


def test_head_of_a_stream_ends(stack: Stack) -> None:
    """And the connection is free for the next request."""
    host, _, port = stack.listen.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    headers = {"Authorization": token_of("viewer"), "Accept": "text/event-stream"}
    for method, path in (("HEAD", "changes"), ("HEAD", "events"), ("GET", "")):
        connection.request(
            method,
            f"/api/v1/{path}",
            headers={**headers, "Accept": "*/*"} if path == "" else headers,
        )
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, method == "GET")
    connection.close()


def test_the_description_is_packed(stack: Stack) -> None:
    answer, data = call(stack, "GET", "/api/schema/", Accept_Encoding="zstd")
    assert answer.headers["Content-Encoding"] == "zstd"
    assert unpacked(data).startswith(b"openapi:")


def test_documents_and_imports_may_be_packed(stack: Stack) -> None:
    clusters.create("north")
    put("a1", xml=BARE)
    header = {"Authorization": token_of("operator"), "Content_Encoding": "gzip"}
    path = "/api/v1/nodes/a1/document"
    answer, body = call(
        stack, "PUT", path, gzip.compress(GPU), Content_Type="application/xml", **header
    )
    assert (answer.status, json.loads(body)["outcome"]) == (200, "updated")
    answer, body = call(stack, "PUT", path, b"x", Content_Type="application/xml", **header)
    assert (answer.status, json.loads(body)["code"]) == (400, "malformed_body")
    lines = b"".join(b'{"system_id": "n%d"}\n' % number for number in range(100))
    answer, body = call(
        stack,
        "POST",
        "/api/v1/nodes/import",
        gzip.compress(lines),
        Content_Type="application/x-ndjson",
        **header,
    )
    assert json.loads(body.splitlines()[-1])["summary"]["created"] == 100


def test_a_name_that_the_database_would_not_take_is_no_tag(stack: Stack) -> None:
    header = token_of("viewer")
    answer, body = call(stack, "GET", "/api/v1/nodes/?tag=%00", Authorization=header)
    assert (answer.status, json.loads(body)["code"]) == (404, "not_found")
