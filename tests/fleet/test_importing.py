"""Bulk upload by lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tagmill.fleet import clusters
from tagmill.fleet.models import Node
from tagmill.flows import imports
from tests.support.fleet import GPU, node

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _north(db: None) -> None:
    clusters.create("north")


def line(system_id: object, **fields: Any) -> bytes:
    return orjson.dumps({"system_id": system_id, **fields}) + b"\n"


def outcomes(*lines: bytes) -> list[tuple[int, str | None, str]]:
    found = imports.import_lines(lines)
    return [(item["line"], item["system_id"], item["outcome"]) for item in found]


def test_every_line_has_a_verdict_and_blank_ones_have_none() -> None:
    xml = GPU.decode()
    assert outcomes(
        line("a", probes={"lshw": xml}),
        b"\n",
        b"{broken\n",
        line("b", cluster="north", hostname="h", kind="machine", probes={"lshw": xml}),
        b"[]\n",
        line("a", probes={"lshw": xml}),
        line("c", colour="red"),
        line("d", probes={"lshw": "<a>"}),
        line(7),
        b"{}\n",
        line("e"),
    ) == [
        (1, "a", "created"),
        (3, None, "refused"),
        (4, "b", "created"),
        (5, None, "refused"),
        (6, "a", "unchanged"),
        (7, "c", "refused"),
        (8, "d", "refused"),
        (9, None, "refused"),
        (10, None, "refused"),
        (11, "e", "created"),
    ]
    assert set(Node.objects.values_list("system_id", flat=True)) == {"a", "b", "e"}


def test_a_refused_document_names_its_line_and_column() -> None:
    (verdict,) = imports.import_lines([line("a", probes={"lshw": "<a>\n<b></a>"})])
    assert verdict["error"]["code"] == "invalid_document"
    assert (verdict["error"]["line"], verdict["line"]) == (2, 1)
    assert verdict["error"]["probe"] == "lshw"


def test_null_deletes_a_probe() -> None:
    xml = GPU.decode()
    outcomes(line("a", probes={"lshw": xml, "lldp": xml}))
    outcomes(line("a", probes={"lldp": None}))
    assert [item.probe for item in node("a").documents.all()] == ["lshw"]


def test_a_line_that_adds_a_probe_too_many_is_refused() -> None:
    xml = GPU.decode()
    lines = [line("a", probes={f"p{number}": xml}) for number in range(17)]
    *_, last = imports.import_lines(lines)
    assert (last["line"], last["outcome"]) == (17, "refused")
    assert (last["error"]["code"], last["error"]["field"]) == ("invalid", "probes")


def test_lines_are_read_a_chunk_at_a_time() -> None:
    read = 0
    ahead = threading.Event()

    def lines() -> Iterator[bytes]:
        nonlocal read
        for i in range(4 * imports.MAX_LINES):
            read += 1
            if read == 2 * imports.MAX_LINES:
                ahead.set()
            yield line(f"n{i}")

    verdicts = imports.import_lines(lines())
    assert next(verdicts)["outcome"] == "created"
    # Those after are read while nobody waits for them, and no more than a chunk of them.
    assert ahead.wait(30)
    assert read == 2 * imports.MAX_LINES
    assert Node.objects.count() == imports.MAX_LINES
    assert len(list(verdicts)) == 4 * imports.MAX_LINES - 1


def test_what_goes_wrong_with_the_lines_ends_the_import() -> None:
    def lines() -> Iterator[bytes]:
        for i in range(imports.MAX_LINES):
            yield line(f"n{i}")
        raise OSError("the body is gone")

    verdicts = imports.import_lines(lines())
    for _ in range(imports.MAX_LINES):
        assert next(verdicts)["outcome"] == "created"
    with pytest.raises(OSError, match="the body is gone"):
        next(verdicts)


def test_nobody_waits_for_lines_after_the_end() -> None:
    def running() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == imports.AHEAD}

    before = running()
    verdicts = imports.import_lines([line("a")] * 3 * imports.MAX_LINES)
    next(verdicts)
    (started,) = running() - before
    verdicts.close()  # type: ignore[attr-defined]
    started.join(30)
    assert not started.is_alive()


def test_few_large_lines_are_a_chunk() -> None:
    read = 0
    ahead = threading.Event()
    xml = f"<a>{'x' * (imports.MAX_BYTES // 4)}</a>"

    def lines() -> Iterator[bytes]:
        nonlocal read
        for i in range(12):
            read += 1
            if read == 8:
                ahead.set()
            yield line(f"n{i}", probes={"lshw": xml})

    verdicts = imports.import_lines(lines())
    next(verdicts)
    assert ahead.wait(30)
    assert read == 8


def test_a_line_that_is_too_long_is_refused() -> None:
    (verdict,) = imports.import_lines([b'{"system_id": "' + b"a" * (16 << 20) + b'"}'])
    assert verdict["error"]["code"] == "too_large"
