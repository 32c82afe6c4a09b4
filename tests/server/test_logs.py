"""What the server's log says of requests."""

from __future__ import annotations

import json
from typing import Any

from loadtest.rig.stack import Stack
from tests.fleet.support import until
from tests.server.test_serve import call


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
