"""Bulk uploads, as the server answers them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Any

from api.server.imports import SPOOL_BYTES, spool
from loadtest.rig.stack import Stack
from tagmill.config import load
from tagmill.fleet import clusters
from tagmill.fleet.models import Node
from tests.server.test_serve import call, token_of
from tests.support.fleet import GPU


def test_good_lines_are_stored_and_bad_ones_refused_each_for_itself(stack: Stack) -> None:
    clusters.create("north")
    token = token_of("uploader")

    def imported(body: bytes) -> list[Any]:
        response, data = call(
            stack,
            "POST",
            "/api/v1/nodes/import",
            body,
            Authorization=token,
            Content_Type="application/x-ndjson; charset=utf-8",
        )
        assert (response.status, response.headers["Content-Type"]) == (200, "application/x-ndjson")
        return [json.loads(line) for line in data.splitlines()]

    good = json.dumps({"system_id": "a", "probes": {"lshw": GPU.decode()}}).encode()
    broken = json.dumps({"system_id": "b", "probes": {"lshw": "<list>"}}).encode()
    unknown = json.dumps({"system_id": "c", "nonsense": 1}).encode()
    *verdicts, last = imported(b"\n".join([good, broken, b"", b"{", unknown, good]))
    assert [(item["line"], item["outcome"]) for item in verdicts] == [
        (1, "created"),
        (2, "refused"),
        (4, "refused"),
        (5, "refused"),
        (6, "unchanged"),
    ]
    assert verdicts[1]["error"]["code"] == "invalid_document"
    assert last == {
        "summary": {"lines": 5, "created": 1, "updated": 0, "unchanged": 1, "refused": 3}
    }
    assert list(Node.objects.values_list("system_id", flat=True)) == ["a"]

    # A line over the limit is refused for itself, too.
    *verdicts, _ = imported(b"x" * (load().import_line_bytes + 10) + b"\n" + good)
    assert [item["outcome"] for item in verdicts] == ["refused", "unchanged"]
    assert verdicts[0]["error"]["code"] == "too_large"

    (last,) = imported(b"")
    assert last["summary"]["lines"] == 0


def test_verdicts_leave_memory_before_the_last_one_is_there() -> None:
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as file:
        spooled: Any = file
        is_rolled = []

        def answers() -> Iterator[bytes]:
            for _ in range(3):
                is_rolled.append(spooled._rolled)
                yield b"x" * (SPOOL_BYTES - 1)

        spool(answers(), spooled)
        assert is_rolled == [False, False, True]
